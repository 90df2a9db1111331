// The head in chunks of any size, and with logits of 16 bits: layouts equal one rank, and the locks hold.
#include "parity/layout.h"
#include "parity/locks.h"
#include "parity/training_run.h"

#include <gtest/gtest.h>

#include <cmath>

namespace echelon::testing {
namespace {

const Layout head_layouts[] = {{.shard = 2, .tp = 2, .sequence_parallel = true, .zero = 3},
                               {.tp = 4, .family = Family::gpt2, .tied = true},
                               {.pp = 2, .schedule = PipelineSchedule::zb_h1, .microbatches = 3, .tied = true}};

std::unique_ptr<Trajectory> run_with_locks(const RunConfig& config) {
  const ProgramRuns runs = {.training = config.training.steps, .evaluation = 1};
  return run_training(config, {.at_end = [&](const RankView& rank) { expect_locks_hold(rank, runs); }});
}

/// With each of these values of a key of [training] a layout does what one rank does without.
void expect_equal_for(std::int64_t TrainingConfig::*key, std::initializer_list<std::int64_t> values,
                      const Layout& layout) {
  SCOPED_TRACE(name_of(layout));
  RunConfig config = config_of(layout);
  config.training.steps = 3;
  const auto expected = run_training(one_rank(config));
  for (const std::int64_t value : values) {
    config.training.*key = value;
    expect_equal(*run_with_locks(config), *expected, 1e-11, 1e-9, config.optimizer.lr);
  }
}

TEST(HeadChunks, OfAnySizeEqualOneRank) {
  for (const Layout& layout : head_layouts) expect_equal_for(&TrainingConfig::head_chunk_tokens, {1, 5}, layout);
}

// Of 16 bits are the logits alone: the losses are those of float32 logits as far as their rounding lets them, and
// layouts round alike.
TEST(HalfLogits, LossesAreThoseOfOneRank) {
  for (const DType dtype : {DType::bfloat16, DType::float16})
    for (const Layout& layout : head_layouts) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + name_of(layout));
      RunConfig config = config_of(layout);
      config.training.steps = 3;
      config.training.logits_dtype = config.training.dtype = dtype;
      const auto actual = run_with_locks(config), expected = run_training(one_rank(config));
      config.training.logits_dtype.reset();
      const auto plain = run_training(config);
      const double last_bit = dtype == DType::bfloat16 ? 0x1p-8 : 0x1p-11;
      for (std::size_t step = 0; step < 3; ++step) {
        EXPECT_NEAR(actual->losses[step], expected->losses[step], last_bit * expected->losses[step]);
        EXPECT_NEAR(actual->losses[step], plain->losses[step], last_bit * plain->losses[step]);
        EXPECT_NE(actual->losses[step], plain->losses[step]);
      }
    }
}

// Rows and columns beside the vocabulary change nothing, with and without tensor parallelism.
TEST(PaddedVocabulary, EqualsOneRankWithoutPadding) {
  for (const Layout& layout : head_layouts)
    expect_equal_for(&TrainingConfig::make_vocab_size_divisible_by, {7, 64}, layout);
  expect_equal_for(&TrainingConfig::make_vocab_size_divisible_by, {7, 64}, {.tied = true});
}

/// What rank 0 does with the rows of each chunk.
std::vector<OpRecord> row_exps(const RunConfig& config) {
  const Blueprint blueprint(config);
  const RankBlueprint rank = blueprint.rank(0);
  std::vector<OpRecord> found;
  for (const Action& action : rank.program(ProgramKind::training))
    for (const OpRecord& op : rank.trace(ProgramKind::training).of(action).operations())
      if (op.kind == OpKind::row_exp) found.push_back(op);
  return found;
}
std::int64_t num_chunks(const RunConfig& config) { return std::ssize(row_exps(config)); }

// Processors take 2,048 tokens and 256 MiB at a time, GPUs 512 MiB.
TEST(HeadChunks, HaveTheSizeThatTheDeviceLikes) {
  RunConfig config = config_of({.microbatches = 1});
  config.model.max_position_embeddings = config.training.seq_len = 4096;
  config.training.micro_batch_size = config.training.global_batch_size = 1;
  config.training.dtype = DType::bfloat16;
  config.model.vocab_size = 1000;
  EXPECT_EQ(num_chunks(config), 2);
  config.training.device = DeviceChoice::cuda;
  EXPECT_EQ(num_chunks(config), 1);
  config.model.vocab_size = 128'256;
  EXPECT_EQ(num_chunks(config), 2);  // 2,093 tokens with 2 bytes each, for the gradient takes the logit's place
  config.training.device = DeviceChoice::cpu;
  EXPECT_EQ(num_chunks(config), 12);  // 348 tokens with 4 bytes, and 2 for the gradient
  config.training.dtype = DType::float32;
  EXPECT_EQ(num_chunks(config), 8);  // 523 tokens with 4 bytes
  config.training.head_chunk_tokens = 300;
  EXPECT_EQ(num_chunks(config), 14);
}

// Of 5,000 tokens at most 2,093 fit on a GPU: three chunks, as even as multiples of 256 can be. Of a chunk size that is
// asked for, whole multiples are taken.
TEST(HeadChunks, AreWholeTilesOnGpus) {
  RunConfig config = config_of({.microbatches = 1});
  config.model.max_position_embeddings = config.training.seq_len = 5000;
  config.training.micro_batch_size = config.training.global_batch_size = 1;
  config.training.dtype = DType::bfloat16;
  config.model.vocab_size = 128'256;
  config.training.device = DeviceChoice::cuda;
  const auto rows = [&] {
    std::vector<std::int64_t> counts;
    for (const OpRecord& op : row_exps(config)) counts.push_back(op.m);
    return counts;
  };
  EXPECT_EQ(rows(), (std::vector<std::int64_t>{1792, 1792, 1416}));
  config.training.head_chunk_tokens = 3000;
  EXPECT_EQ(rows(), (std::vector<std::int64_t>{2560, 2440}));
  config.training.head_chunk_tokens = 200;
  EXPECT_EQ(rows(), std::vector<std::int64_t>(25, 200));
}

// On GPUs rows of a multiple of 128 logits, in the format of the activations.
TEST(Logits, HaveTheFormThatTheDeviceLikes) {
  RunConfig config = config_of({.microbatches = 1});
  config.training.dtype = DType::bfloat16;
  config.model.vocab_size = 1000;
  const OpRecord on_processor = row_exps(config).front();
  config.training.device = DeviceChoice::cuda;
  const OpRecord on_gpu = row_exps(config).front();
  config.training.logits_dtype = DType::float32;
  config.training.make_vocab_size_divisible_by = 1;
  const OpRecord as_asked = row_exps(config).front();
  EXPECT_EQ(on_processor.n, 1000);
  EXPECT_EQ(on_gpu.n, 1024);
  EXPECT_LT(on_gpu.bytes, on_processor.bytes * 6 / 10);
  EXPECT_EQ(as_asked, on_processor);
}

}  // namespace
}  // namespace echelon::testing
