// What a step sends, against the closed forms of the papers.
#include "blueprint/blueprint.h"
#include "blueprint/small_config.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

std::map<Group, std::int64_t> sent_per_step(const RankBlueprint& rank) {
  std::map<Group, std::int64_t> sent;
  for (const Action& action : rank.program(ProgramKind::training))
    for (const CommRecord& comm : rank.trace(ProgramKind::training).of(action).comms) sent[comm.group] += comm.sent_bytes;
  return sent;
}

std::int64_t padded_parameters(const RankBlueprint& rank) {
  std::int64_t bytes = 0;
  for (const PlannedBuffer& buffer : rank.memory(ProgramKind::training).buffers())
    if (buffer.key.role == BufferRole::param) bytes += buffer.num_bytes;
  return bytes / 4;
}

// All-reduce: 2 (n - 1) / n of the buffer per rank (Patarasuk and Yuan 2009); the count of tokens is one float64 more.
TEST(Traffic, DataParallelSendsTheAllReduce) {
  for (const int n : {2, 4, 8}) {
    RunConfig config = testing::small_config();
    config.parallelism.data_parallel_replicate_degree = n;
    const Blueprint blueprint(config);
    const RankBlueprint rank = blueprint.rank(1);
    EXPECT_EQ(sent_per_step(rank).at({AxisSet{Axis::dp_replicate}}), 2 * (n - 1) * 4 * padded_parameters(rank) / n);
  }
}

// ZeRO-1 sends what plain data parallelism sends: a reduce-scatter of gradients and an all-gather of parameters (Rajbhandari et al. 2020, section 7.2.1).
TEST(Traffic, ZeroOneSendsAsMuchAsDataParallel) {
  for (const int n : {2, 4, 8}) {
    RunConfig config = testing::small_config();
    config.parallelism.data_parallel_shard_degree = n;
    const Blueprint blueprint(config);
    const RankBlueprint rank = blueprint.rank(1);
    EXPECT_EQ(sent_per_step(rank).at({AxisSet{Axis::dp_shard, Axis::cp}}), 2 * (n - 1) * 4 * padded_parameters(rank) / n);
  }
}

// Two all-reduces of the activations per layer in the forward pass and two in the backward pass (Shoeybi et al. 2019, section 3); one more of each kind for the
// embedding and the head, and for the softmax two all-reduces of a maximum and of two sums per token.
TEST(Traffic, TensorParallelSendsFourAllReducesPerLayer) {
  for (const int n : {2, 4}) {
    RunConfig config = testing::small_config();
    config.parallelism.tensor_parallel_degree = n;
    const Blueprint blueprint(config);
    const std::int64_t tokens = config.training.micro_batch_size * config.training.seq_len, activations = tokens * config.model.hidden_size * 4;
    const std::int64_t per_microbatch = (4 * config.model.num_hidden_layers + 2) * activations + 3 * tokens * 4;
    EXPECT_EQ(sent_per_step(blueprint.rank(0)).at({AxisSet{Axis::tp}}), config.num_microbatches() * 2 * (n - 1) * per_microbatch / n);
  }
}

// With sequence parallelism all-gathers and reduce-scatters take the place of the all-reduces: the same bytes, but for the inputs that are gathered once more
// in the backward pass (Korthikanti et al. 2022, section 4.2.2).
TEST(Traffic, SequenceParallelGathersInputsOnceMore) {
  const int n = 2;
  RunConfig config = testing::small_config();
  config.parallelism.tensor_parallel_degree = n;
  config.parallelism.sequence_parallel = true;
  const Blueprint blueprint(config);
  const ModelSpec& model = config.model;
  const std::int64_t tokens = config.training.micro_batch_size * config.training.seq_len, activations = tokens * model.hidden_size * 4,
                     layers = model.num_hidden_layers;
  // Per layer: forward 2 gathers and 2 scatters, backward 2 gathers of dy, 2 scatters of dx, 2 gathers of x. Embedding: a scatter, a gather of dy.
  // Head: a gather and a scatter of dx, both in its backward pass.
  const std::int64_t shards = (10 * layers + 2 + 2) * activations * (n - 1) / n;
  const std::int64_t softmax = 3 * tokens * 4 * 2 * (n - 1) / n;
  std::int64_t norms = 0;  // their gradients are partial on each rank: once a step
  const RankBlueprint rank = blueprint.rank(0);
  for (const PlannedBuffer& buffer : rank.memory(ProgramKind::training).buffers())
    if (buffer.key.role == BufferRole::grad && buffer.num_bytes - buffer.padding_bytes <= 2 * model.hidden_size * 4) norms += buffer.num_bytes;
  EXPECT_EQ(sent_per_step(rank).at({AxisSet{Axis::tp}}), config.num_microbatches() * (shards + softmax) + norms * 2 * (n - 1) / n);
}

// One activation forward and one gradient backward per border and microbatch.
TEST(Traffic, PipelinesSendBoundaries) {
  RunConfig config = testing::small_config();
  config.parallelism.pipeline_parallel_degree = 4;
  const Blueprint blueprint(config);
  const std::int64_t boundary = config.training.micro_batch_size * config.training.seq_len * config.model.hidden_size * 4;
  for (int stage = 0; stage < 4; ++stage) {
    const std::int64_t borders = (stage > 0 ? 1 : 0) + (stage < 3 ? 1 : 0);
    EXPECT_EQ(sent_per_step(blueprint.rank(stage)).at({AxisSet{Axis::pp}}), borders * config.num_microbatches() * boundary);
  }
}

// 6 flops per parameter and token for the matrix products and 12 L H C T / 2 for causal attention's two products (half of them are masked, plus the diagonal),
// with the head's logits formed once more in the backward pass.
TEST(Traffic, FlopsOfProductsAreSixPerParameterAndToken) {
  RunConfig config = testing::small_config();
  const Blueprint blueprint(config);
  const ModelSpec& model = config.model;
  double products = 0;
  const RankBlueprint rank = blueprint.rank(0);
  for (const Action& action : rank.program(ProgramKind::training))
    for (const OpRecord& op : rank.trace(ProgramKind::training).of(action).ops)
      if (op.kind == OpKind::matmul) products += static_cast<double>(op.flops);
  const double D = static_cast<double>(model.hidden_size), F = static_cast<double>(model.intermediate_size), V = static_cast<double>(model.vocab_size);
  const double in_layers = static_cast<double>(model.num_hidden_layers) * (4 * D * D + 3 * D * F);
  const auto tokens = static_cast<double>(config.training.global_batch_size * config.training.seq_len);
  EXPECT_DOUBLE_EQ(products, tokens * (6 * in_layers + 6 * D * V));
}

// Products of the first microbatch write the gradients of their weights, those of the others read them too; tied or not, the head's is such a product.
TEST(Traffic, TheFirstMicrobatchReadsNoGradientThatAProductForms) {
  for (const bool is_tied : {false, true}) {
    RunConfig config = testing::small_config();
    config.model.tie_word_embeddings = is_tied;
    const Blueprint blueprint(config);
    const RankBlueprint rank = blueprint.rank(0);
    const auto bytes_of_products = [&](int microbatch) {
      std::int64_t bytes = 0;
      for (const OpRecord& op : rank.trace(ProgramKind::training).of({.kind = ActionKind::backward, .stage = 0, .microbatch = microbatch}).ops)
        if (op.kind == OpKind::matmul) bytes += op.bytes;
      return bytes;
    };
    const std::int64_t D = config.model.hidden_size, F = config.model.intermediate_size;
    const std::int64_t weights = config.model.num_hidden_layers * (4 * D * D + 3 * D * F) + D * config.model.vocab_size;
    EXPECT_EQ(bytes_of_products(1) - bytes_of_products(0), 4 * weights);
    EXPECT_EQ(bytes_of_products(1), bytes_of_products(7));
  }
}

}  // namespace
}  // namespace echelon
