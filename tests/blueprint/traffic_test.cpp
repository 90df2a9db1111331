// What a step sends, against the closed forms of the papers.
#include "blueprint/blueprint.h"
#include "blueprint/small_config.h"
#include "spec/groups.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

std::map<Group, std::int64_t> sent_per_step(const RankBlueprint& rank) {
  std::map<Group, std::int64_t> sent;
  for (const Action& action : rank.program(ProgramKind::training))
    for (const CommRecord& comm : rank.trace(ProgramKind::training).of(action).communications())
      sent[comm.group] += comm.sent_bytes;
  return sent;
}

std::int64_t padded_parameters(const RankBlueprint& rank) {
  std::int64_t bytes = 0;
  for (const PlannedBuffer& buffer : rank.memory(ProgramKind::training).buffers())
    if (buffer.key.role == BufferRole::param) bytes += buffer.num_bytes;
  return bytes / 4;
}

// All-reduce: 2 (n - 1) / n of the buffer per rank (Patarasuk and Yuan 2009); the count of tokens is one float64 more.
//
// Claim (plans): What a rank stores at each level of ZeRO is the paper's formula, and what it
//   sends is the paper's volume.
// Bound: to the byte.
// Tests: MemoryPlan|Traffic
TEST(Traffic, DataParallelSendsTheAllReduce) {
  for (const int n : {2, 4, 8}) {
    RunConfig config = testing::small_config();
    config.parallelism.data_parallel_replicate_degree = n;
    const Blueprint blueprint(config);
    const RankBlueprint rank = blueprint.rank(1);
    EXPECT_EQ(sent_per_step(rank).at({AxisSet{Axis::dp_replicate}}), 2 * (n - 1) * 4 * padded_parameters(rank) / n);
  }
}

// ZeRO-1 sends what plain data parallelism sends: a reduce-scatter of gradients and an all-gather of parameters
// (Rajbhandari et al. 2020, section 7.2.1).
TEST(Traffic, ZeroOneSendsAsMuchAsDataParallel) {
  for (const int n : {2, 4, 8}) {
    RunConfig config = testing::small_config();
    config.parallelism.data_parallel_shard_degree = n;
    const Blueprint blueprint(config);
    const RankBlueprint rank = blueprint.rank(1);
    EXPECT_EQ(sent_per_step(rank).at({AxisSet{Axis::dp_shard, Axis::cp}}),
              2 * (n - 1) * 4 * padded_parameters(rank) / n);
  }
}

/// Bytes of a rank's keys and values in one layer and microbatch, as numbers of this size.
std::int64_t block_bytes(const RunConfig& config, std::int64_t rows, DType dtype) {
  const ModelSpec& model = config.model;
  const std::int64_t heads = model.num_key_value_heads / config.parallelism.tensor_parallel_degree;
  return 2 * config.training.micro_batch_size * rows * heads * model.head_dim * size_of(dtype);
}

// docs/internals/context.md: forward (cp - 1) b, again where attention is recomputed, and backward (cp - 1) (b + g).
TEST(Traffic, ARingSendsBlocksAndTheirGradients) {
  for (const int cp : {2, 3, 5})
    for (const std::int64_t tp : {1, 2})
      for (const DType dtype : {DType::float32, DType::bfloat16})
        for (const BlockOperations& recompute : {BlockOperations(), attention_internals, whole_block}) {
          RunConfig config = testing::small_config();
          config.parallelism.context_parallel_degree = cp;
          config.parallelism.tensor_parallel_degree = tp;
          config.training.dtype = dtype;
          config.training.recompute = recompute;
          const std::int64_t rows = (config.training.seq_len + cp - 1) / cp,
                             passes = config.model.num_hidden_layers * config.num_microbatches();
          const std::int64_t b = block_bytes(config, rows, dtype), g = block_bytes(config, rows, DType::float32);
          const std::int64_t per_pass = (cp - 1) * ((recompute.empty() ? 2 : 3) * b + g);
          const Blueprint blueprint(config);
          for (const int rank : {0, cp * static_cast<int>(tp) - 1})
            EXPECT_EQ(sent_per_step(blueprint.rank(rank)).at(cp_group), passes * per_pass)
                << "cp " << cp << ", tp " << tp << ", " << name_of(dtype);
        }
}

/// Padded bytes in float32 of each unit of one rank without a pipeline.
std::vector<std::int64_t> unit_bytes(const Blueprint& blueprint) {
  std::vector<std::int64_t> bytes;
  const ModelPart part = make_model_part(blueprint.config(), blueprint.schedule(), 0);
  for (const ShardedUnit* unit : part.units()) {
    bytes.push_back(0);
    for (const Bucket& bucket : unit->buckets()) bytes.back() += 4 * bucket.num_elements;
  }
  return bytes;
}

RunConfig sharded_config(int n, int level, std::int64_t microbatches) {
  RunConfig config = testing::small_config();
  config.parallelism.data_parallel_shard_degree = n;
  config.parallelism.zero_level = level;
  config.training.global_batch_size = microbatches * n * config.training.micro_batch_size;
  return config;
}

constexpr Group over_shards = {AxisSet{Axis::dp_shard, Axis::cp}, Group::Part::all, 0};

// ZeRO-2: with one microbatch what data parallelism sends (section 7.2.1); a reduce-scatter more for each further one.
TEST(Traffic, ZeroTwoScattersTheGradientsOfEachMicrobatch) {
  for (const int n : {2, 4, 8})
    for (const std::int64_t m : {1, 3}) {
      const Blueprint blueprint(sharded_config(n, 2, m));
      std::int64_t psi = 0;
      for (const std::int64_t bytes : unit_bytes(blueprint)) psi += bytes;
      EXPECT_EQ(sent_per_step(blueprint.rank(1)).at(over_shards), (m + 1) * (n - 1) * psi / n) << n << " " << m;
    }
}

// ZeRO-3: 3/2 of data parallelism for one microbatch (section 7.2.2): a unit is gathered for its forward and for its
// backward pass, and its gradient scattered. The last unit, whose two passes are neighbours, is gathered once for both,
// and so is the first one for its backward pass and the next microbatch's forward pass. Units that are gathered further
// ahead stay for a pass that is so near.
TEST(Traffic, ZeroThreeSendsThreeVolumesPerMicrobatch) {
  for (const int n : {2, 4, 8})
    for (const std::int64_t m : {1, 3})
      for (const auto reshard :
           {ReshardAfterForward::microbatch, ReshardAfterForward::never, ReshardAfterForward::step})
        for (const std::int64_t depth : {1, 2, 3}) {
          RunConfig config = sharded_config(n, 3, m);
          config.parallelism.prefetch_depth = depth;
          config.parallelism.reshard_after_forward = reshard;
          const Blueprint blueprint(config);
          const std::vector<std::int64_t> units = unit_bytes(blueprint);
          std::int64_t volumes = 0, psi = 0;
          for (std::size_t i = 0; i < units.size(); ++i) {
            // Passes from a unit's forward to its backward pass, and from there to the next microbatch's forward pass.
            const auto back = 2 * static_cast<std::int64_t>(units.size() - 1 - i) + 1,
                       forth = 2 * static_cast<std::int64_t>(i) + 1;
            std::int64_t gathers = 1;
            if (reshard != ReshardAfterForward::step && forth > depth) gathers += m - 1;
            if (reshard == ReshardAfterForward::microbatch && back > depth) gathers += m;
            volumes += (gathers + m) * units[i];
            psi += units[i];
          }
          const std::int64_t sent = sent_per_step(blueprint.rank(1)).at(over_shards);
          EXPECT_EQ(sent, volumes * (n - 1) / n) << n << " " << m << " " << name_of(reshard);
          EXPECT_LE(sent, 3 * m * psi * (n - 1) / n);
          EXPECT_FALSE(sent_per_step(blueprint.rank(1)).contains(replicate_group) &&
                       sent_per_step(blueprint.rank(1)).at(replicate_group) > 0);
        }
}

// Hybrid sharding (Zhao et al. 2023, section 3.2.2): over the replicas only the shards are all-reduced, once a step: 2
// (r - 1) / r of psi / n.
TEST(Traffic, HybridShardingReducesShardsOverReplicas) {
  for (const int level : {1, 2, 3})
    for (const int r : {2, 4}) {
      const int n = 2;
      RunConfig config = sharded_config(n, level, 3);
      config.parallelism.data_parallel_replicate_degree = r;
      config.training.global_batch_size *= r;
      const Blueprint blueprint(config);
      std::int64_t psi = 0;
      for (const std::int64_t bytes : unit_bytes(blueprint)) psi += bytes;
      EXPECT_EQ(sent_per_step(blueprint.rank(1)).at(replicate_group), 2 * (r - 1) * psi / n / r) << level << " " << r;
    }
}

// training.reduce_dtype = bfloat16 halves what gradients send, and nothing else.
TEST(Traffic, GradientsTravelInTheFormatOfTheirReduction) {
  RunConfig config = sharded_config(2, 1, 2);
  const Blueprint plain(config);
  const std::int64_t before = sent_per_step(plain.rank(0)).at(over_shards);
  config.training.reduce_dtype = DType::bfloat16;
  const Blueprint coarse(config);
  EXPECT_EQ(sent_per_step(coarse.rank(0)).at(over_shards), before * 3 / 4);
  config = sharded_config(1, 1, 2);
  config.parallelism.data_parallel_replicate_degree = 4;
  config.training.global_batch_size *= 4;
  const Blueprint fine(config);
  config.training.reduce_dtype = DType::bfloat16;
  const Blueprint all_reduced(config);
  EXPECT_EQ(2 * sent_per_step(all_reduced.rank(0)).at(replicate_group),
            sent_per_step(fine.rank(0)).at(replicate_group));
}

// Two all-reduces of the activations per layer in the forward pass and two in the backward pass (Shoeybi et al. 2019,
// section 3); one more of each kind for the embedding and the head, and for the softmax two all-reduces of a maximum
// and of two sums per token.
TEST(Traffic, TensorParallelSendsFourAllReducesPerLayer) {
  for (const int n : {2, 4}) {
    RunConfig config = testing::small_config();
    config.parallelism.tensor_parallel_degree = n;
    const Blueprint blueprint(config);
    const std::int64_t tokens = config.training.micro_batch_size * config.training.seq_len,
                       activations = tokens * config.model.hidden_size * 4;
    const std::int64_t per_microbatch = (4 * config.model.num_hidden_layers + 2) * activations + 3 * tokens * 4;
    EXPECT_EQ(sent_per_step(blueprint.rank(0)).at({AxisSet{Axis::tp}}),
              config.num_microbatches() * 2 * (n - 1) * per_microbatch / n);
  }
}

// With sequence parallelism all-gathers and reduce-scatters take the place of the all-reduces: the same bytes, but for
// the inputs that are gathered once more in the backward pass (Korthikanti et al. 2022, section 4.2.2).
TEST(Traffic, SequenceParallelGathersInputsOnceMore) {
  const int n = 2;
  RunConfig config = testing::small_config();
  config.parallelism.tensor_parallel_degree = n;
  config.parallelism.sequence_parallel = true;
  const Blueprint blueprint(config);
  const ModelSpec& model = config.model;
  const std::int64_t tokens = config.training.micro_batch_size * config.training.seq_len,
                     activations = tokens * model.hidden_size * 4, layers = model.num_hidden_layers;
  // Per layer: forward 2 gathers and 2 scatters, backward 2 gathers of dy, 2 scatters of dx, 2 gathers of x. Embedding:
  // a scatter, a gather of dy. Head: a gather and a scatter of dx, both in its backward pass.
  const std::int64_t shards = (10 * layers + 2 + 2) * activations * (n - 1) / n;
  const std::int64_t softmax = 3 * tokens * 4 * 2 * (n - 1) / n;
  std::int64_t norms = 0;  // their gradients are partial on each rank: once a step
  const RankBlueprint rank = blueprint.rank(0);
  for (const PlannedBuffer& buffer : rank.memory(ProgramKind::training).buffers())
    if (buffer.key.role == BufferRole::grad && buffer.num_bytes - buffer.padding_bytes <= 2 * model.hidden_size * 4)
      norms += buffer.num_bytes;
  EXPECT_EQ(sent_per_step(rank).at({AxisSet{Axis::tp}}),
            config.num_microbatches() * (shards + softmax) + norms * 2 * (n - 1) / n);
}

// One activation forward and one gradient backward per border and microbatch.
TEST(Traffic, PipelinesSendBoundaries) {
  RunConfig config = testing::small_config();
  config.parallelism.pipeline_parallel_degree = 4;
  const Blueprint blueprint(config);
  const std::int64_t boundary =
      config.training.micro_batch_size * config.training.seq_len * config.model.hidden_size * 4;
  for (int stage = 0; stage < 4; ++stage) {
    const std::int64_t borders = (stage > 0 ? 1 : 0) + (stage < 3 ? 1 : 0);
    EXPECT_EQ(sent_per_step(blueprint.rank(stage)).at({AxisSet{Axis::pp}}),
              borders * config.num_microbatches() * boundary);
  }
}

// 6 flops per parameter and token for the matrix products and 12 L H C T / 2 for causal attention's two products (half
// of them are masked, plus the diagonal), with the head's logits formed once more in the backward pass.
TEST(Traffic, FlopsOfProductsAreSixPerParameterAndToken) {
  RunConfig config = testing::small_config();
  const Blueprint blueprint(config);
  const ModelSpec& model = config.model;
  double products = 0;
  const RankBlueprint rank = blueprint.rank(0);
  for (const Action& action : rank.program(ProgramKind::training))
    for (const OpRecord& op : rank.trace(ProgramKind::training).of(action).operations())
      if (op.kind == OpKind::matmul) products += static_cast<double>(op.flops);
  const double D = static_cast<double>(model.hidden_size), F = static_cast<double>(model.intermediate_size),
               V = static_cast<double>(model.vocab_size);
  const double in_layers = static_cast<double>(model.num_hidden_layers) * (4 * D * D + 3 * D * F);
  const auto tokens = static_cast<double>(config.training.global_batch_size * config.training.seq_len);
  EXPECT_DOUBLE_EQ(products, tokens * (6 * in_layers + 6 * D * V));
}

// Products of the first microbatch write the gradients of their weights, those of the others read them too; tied or
// not, the head's is such a product.
TEST(Traffic, TheFirstMicrobatchReadsNoGradientThatAProductForms) {
  for (const bool is_tied : {false, true}) {
    RunConfig config = testing::small_config();
    config.model.tie_word_embeddings = is_tied;
    const Blueprint blueprint(config);
    const RankBlueprint rank = blueprint.rank(0);
    const auto bytes_of_products = [&](int microbatch) {
      std::int64_t bytes = 0;
      for (const OpRecord& op : rank.trace(ProgramKind::training)
                                    .of({.kind = ActionKind::backward, .stage = 0, .microbatch = microbatch})
                                    .operations())
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
