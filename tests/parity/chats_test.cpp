// Conversations of several lengths, most of whose tokens are not trained: packed into sequences they give the loss and
// the gradients of each in a sequence of its own.
#include "data/chat_fixture.h"
#include "data/dataset_batches.h"
#include "data/packing/packing_file.h"
#include "parity/layout.h"
#include "parity/training_run.h"

#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

/// From 1 to 5 turns; all but every fifth with an answer that is not trained.
std::string conversations(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    auto messages = nlohmann::ordered_json::array();
    for (int turn = 0; turn <= i * i % 5; ++turn) {
      messages.push_back({{"role", "user"}, {"content", std::string(static_cast<std::size_t>(i * turn % 7), 'o')}});
      messages.push_back({{"role", "assistant"},
                          {"content", std::string(static_cast<std::size_t>((3 * i + turn) % 11), 'h') + "the"},
                          {"weight", turn == 1 && i % 5 != 0 ? 0 : 1}});
    }
    lines += nlohmann::ordered_json({{"messages", messages}}).dump() + "\n";
  }
  return lines;
}

/// Sequence i is conversation i, and padding.
class OneInEach final : public BatchSource {
 public:
  explicit OneInEach(const std::string& prefix) : dataset_(prefix), mask_(LossMask::of(dataset_).value()) {}

  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override {
    const std::int64_t start = dataset_.document_start(sequence), size = num_tokens(sequence, seq_len);
    std::fill(tokens, tokens + seq_len, 0);
    std::fill(targets, targets + seq_len, ignored_target);
    dataset_.read(start, {tokens, static_cast<std::size_t>(size)});
    for (std::int64_t i = 1; i < size; ++i)
      if (mask_.is_trained(start + i)) targets[i - 1] = tokens[i];
  }
  void read_document_starts(std::int64_t sequence, std::int64_t seq_len, std::int32_t* starts) const override {
    const std::int64_t size = num_tokens(sequence, seq_len);
    for (std::int64_t i = 0; i < seq_len; ++i) starts[i] = static_cast<std::int32_t>(i < size ? 0 : size);
  }
  [[nodiscard]] std::int64_t num_tokens(std::int64_t sequence, std::int64_t /*seq_len*/) const override {
    return dataset_.document_start(sequence + 1) - dataset_.document_start(sequence);
  }

 private:
  IndexedDataset dataset_;
  LossMask mask_;
};

class StepOfChats final : public RunObserver {
 public:
  void has_gradients(const RankView& rank, std::int64_t /*step*/, double factor) override {
    gradients.add_gradients(rank.run.model(), rank.ops, factor);
  }
  void ended_step(const RankView& rank, std::int64_t /*step*/, const StepResult& of_step) override {
    if (rank.mesh.rank() == 0) result = of_step;
  }
  TensorCollection gradients;
  StepResult result{};
};

/// A step on all of the data.
void run_on_chats(const Layout& layout, const BatchSource& batches, std::int64_t num_sequences, StepOfChats& step) {
  RunConfig config = config_of(layout);  // with layout.documents: attention within documents
  config.model.vocab_size = 262;
  config.model.max_position_embeddings = config.training.seq_len;
  config.data.packing = Packing::best_fit;
  config.data.eod_mask_loss = true;
  config.training.global_batch_size = num_sequences;
  config.training.micro_batch_size = 1;
  run_layout({.blueprint = Blueprint(config), .batches = batches}, step);
}

// To 1e-11 in float64, on one rank and with data, tensor, pipeline and context parallelism.
TEST(PackedChats, ComputeWhatEachComputesInASequenceOfItsOwn) {
  constexpr std::int64_t num_chats = 24, T = 224;
  const Scratch scratch;
  (void)prepare(chat_options(scratch, conversations(num_chats)));
  const std::string prefix = scratch.path("out/train");
  const IndexedDataset dataset(prefix);
  ASSERT_EQ(dataset.num_documents(), num_chats);
  const std::int64_t num_trained = [&] {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < dataset.num_tokens(); ++i) count += LossMask::of(dataset)->is_trained(i) ? 1 : 0;
    return count;
  }();
  PackedSequences packing = open_packing(dataset, T, 0).packed;
  const std::int64_t num_packed = packing.num_sequences();
  ASSERT_EQ(packing.num_split, 0);
  ASSERT_EQ(num_packed % 2, 0) << num_packed;
  const DatasetBatches packed(IndexedDataset(prefix), {.vocab_size = 262, .eod_mask_loss = true}, std::move(packing));
  for (const Family family : {Family::llama, Family::gpt2}) {
    const Layout plain = {.family = family, .layers = 3, .documents = true, .seq_len = T, .positions = true};
    StepOfChats of_each;
    run_on_chats(plain, OneInEach(prefix), num_chats, of_each);
    EXPECT_EQ(of_each.result.num_targets, static_cast<double>(num_trained));
    Layout mixed = plain, context = plain;
    mixed.shard = mixed.tp = mixed.pp = 2;
    context.cp = 2;
    context.balancer = LoadBalancer::packed;
    for (const Layout& layout : {plain, mixed, context}) {
      SCOPED_TRACE(name_of(layout));
      StepOfChats of_packed;
      run_on_chats(layout, packed, num_packed, of_packed);
      EXPECT_EQ(of_packed.result.num_targets, of_each.result.num_targets);
      EXPECT_NEAR(of_packed.result.loss, of_each.result.loss, 1e-11 * of_each.result.loss);
      EXPECT_LE(worst_difference(of_packed.gradients, of_each.gradients, 1e-3).error, 1e-11);
    }
    // It matters that they do not see each other.
    StepOfChats across;
    Layout seeing = plain;
    seeing.documents = seeing.positions = false;
    run_on_chats(seeing, packed, num_packed, across);
    EXPECT_GT(std::abs(across.result.loss - of_each.result.loss), 1e-4);
  }
}

}  // namespace
}  // namespace echelon::testing
