// docs/internals/memory.md against the plan: every byte of activations that a block costs, for each way to form it
// again.
#include "blueprint/activation_formulas.h"

#include "blueprint/blueprint.h"
#include "blueprint/planned_stage.h"
#include "blueprint/small_config.h"
#include "nn/head_split.h"
#include "nn/sharding.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

using formulas::Block;
using formulas::Bytes;
using enum BlockOperation;

const std::vector<BlockOperations> all_kinds = {{},
                                                {qkv_proj},
                                                {qk_norm},
                                                {core_attn},
                                                {o_proj},
                                                {mlp},
                                                {qk_norm, core_attn},
                                                {o_proj, core_attn},
                                                {qkv_proj, o_proj},
                                                {core_attn, mlp},
                                                {o_proj, mlp},
                                                attention_internals,
                                                whole_block};

struct Shape {
  Family family = Family::llama;
  int tp = 1;
  bool sequence_parallel = false;
  // Nothing divides much.
  std::int64_t batch = 2, seq_len = 12, heads = 6, kv_heads = 3, head_dim = 10, hidden = 44, inner = 70;
  int cp = 1;
};

const std::vector<Shape> shapes = {
    {},
    {.family = Family::gpt2, .kv_heads = 6, .hidden = 60},
    {.family = Family::qwen3},
    {.family = Family::gpt2, .tp = 2, .kv_heads = 6, .hidden = 60},
    {.tp = 2, .sequence_parallel = true, .heads = 8, .kv_heads = 2},
    {.family = Family::qwen3, .tp = 3, .sequence_parallel = true},
    {.family = Family::qwen3, .tp = 4, .heads = 8, .kv_heads = 2, .hidden = 56},
    {.family = Family::gpt2,
     .tp = 4,
     .sequence_parallel = true,
     .batch = 1,
     .seq_len = 16,
     .heads = 5,
     .kv_heads = 5,
     .hidden = 50},
    {.batch = 3, .seq_len = 7, .heads = 4, .kv_heads = 1, .head_dim = 16, .hidden = 64, .inner = 176},
    {.seq_len = 13, .cp = 3},
    {.family = Family::qwen3, .tp = 2, .sequence_parallel = true, .seq_len = 31, .heads = 8, .kv_heads = 2, .cp = 4},
};

RunConfig config_of(const Shape& shape, DType dtype) {
  RunConfig config;
  config.model = family_defaults(shape.family);
  config.model.num_hidden_layers = 5;
  config.model.num_attention_heads = shape.heads;
  config.model.num_key_value_heads = shape.kv_heads;
  config.model.head_dim = shape.head_dim;
  config.model.hidden_size = shape.hidden;
  config.model.intermediate_size = shape.inner;
  config.model.vocab_size = 128;
  config.model.max_position_embeddings = 64;
  config.training.dtype = dtype;
  config.training.seq_len = shape.seq_len;
  config.training.micro_batch_size = shape.batch;
  config.training.global_batch_size = 4 * shape.batch;
  config.parallelism.tensor_parallel_degree = shape.tp;
  config.parallelism.sequence_parallel = shape.sequence_parallel;
  config.parallelism.context_parallel_degree = shape.cp;
  config.parallelism.pipeline_parallel_degree = 3;
  config.parallelism.pipeline_parallel_layout.counts = {1, 3, 1};
  return config;
}

Block block_of(const RunConfig& config, int tp_rank) {
  const ModelSpec& model = config.model;
  const int tp = static_cast<int>(config.parallelism.tensor_parallel_degree);
  const HeadSplit split = head_split(model, tp, tp_rank);
  const DType dtype = config.training.dtype;
  Block block;
  block.has_ring = config.parallelism.context_parallel_degree > 1;
  block.N = config.training.micro_batch_size * rows_per_rank(token_split(config));
  block.M = config.training.mlp_chunk_tokens;
  block.n = config.parallelism.sequence_parallel ? block.N / tp : block.N;
  block.D = model.hidden_size;
  block.H = split.num_heads;
  block.K = split.num_kv_heads;
  block.C = model.head_dim;
  block.F = even_slice(model.intermediate_size, tp, tp_rank).count;
  block.e = size_of(dtype);
  block.a = size_of(accumulate_dtype(dtype));
  block.S = model.norm == NormKind::layer_norm ? 2 : 1;
  block.G = is_gated(model.mlp) ? 2 : 1;
  block.has_qk_norm = model.qk_norm;
  block.splits_tokens = config.parallelism.sequence_parallel;
  return block;
}

/// The plan of one way to form a block again, against the formulas.
void expect_planned(const RunConfig& config, const Shape& shape) {
  const BlockOperations& recompute = config.training.recompute;
  const bool is_block = config.training.recompute_method == RecomputeMethod::block;
  SCOPED_TRACE(fmt::format("family {}, tp {}{}, cp {}, {}, {}, {}, chunks of {}", static_cast<int>(shape.family),
                           shape.tp, shape.sequence_parallel ? "sp" : "", shape.cp, name_of(config.training.dtype),
                           fmt::join(names_of(recompute), " "), name_of(config.training.recompute_method),
                           config.training.mlp_chunk_tokens));
  const int tp_rank = shape.tp - 1;
  const Block block = block_of(config, tp_rank);
  const std::vector<BlockOperations> blocks = {recompute, recompute, is_block ? BlockOperations() : recompute};
  const auto over_blocks = [&](auto bytes_of) {
    Bytes sum = 0, most = 0;
    for (const BlockOperations& each : blocks) {
      sum += bytes_of(each);
      most = std::max(most, bytes_of(each));
    }
    return std::pair(sum, most);
  };
  const auto of = [&](auto formula) {
    return over_blocks([&](const BlockOperations& each) { return formula(block, each); });
  };
  const StageBytes fused = planned_stage(config, one_f_one_b_schedule(3, 4), tp_rank),
                   split = planned_stage(config, zb_h1_schedule(3, 4), tp_rank);
  for (const StageBytes& plan : {fused, split}) {
    EXPECT_EQ(plan.stash, of(formulas::kept).first + 2 * block.x());
    EXPECT_EQ(plan.input_stash, of(formulas::kept_for_input).first);
    EXPECT_EQ(plan.workspace.at(ActionKind::forward), of(formulas::forward_workspace).second);
  }
  EXPECT_EQ(fused.gradient_stash, 0);
  EXPECT_EQ(fused.workspace.at(ActionKind::backward), of(formulas::backward_workspace).second);
  EXPECT_EQ(split.gradient_stash, of(formulas::kept_for_weights).first);
  EXPECT_EQ(split.workspace.at(ActionKind::backward_input), of(formulas::backward_input_workspace).second);
  EXPECT_EQ(split.workspace.at(ActionKind::backward_weight), of(formulas::backward_weight_workspace).second);
}

// Three blocks, of which the first two or all are formed again; the stage keeps the inputs of the second and third.
TEST(ActivationFormulas, AreThePlan) {
  for (const Shape& shape : shapes)
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64})
      for (const BlockOperations& recompute : all_kinds) {
        RunConfig config = config_of(shape, dtype);
        config.training.recompute = recompute;
        if (recompute == BlockOperations{qk_norm} && !config.model.qk_norm) continue;  // refused
        expect_planned(config, shape);
        if (recompute.empty()) continue;
        config.training.recompute_method = RecomputeMethod::block;
        config.training.recompute_num_layers = 2;
        expect_planned(config, shape);
      }
}

// With the feed-forward branch in chunks of 1, 5 or all tokens.
TEST(ActivationFormulas, OfChunksAreThePlan) {
  for (const Shape& shape : shapes)
    for (const BlockOperations& recompute : all_kinds)
      for (const std::int64_t chunk : {1, 5, 1000}) {
        RunConfig config = config_of(shape, DType::bfloat16);
        config.training.recompute = recompute;
        config.training.mlp_chunk_tokens = chunk;
        if (recompute.contain(mlp)) expect_planned(config, shape);
      }
}

// One block more on a stage that holds `in_flight` microbatches costs its parameters with what training keeps of them,
// and its activations as often.
TEST(ActivationFormulas, AreWhatOneBlockMoreAddsToTheArena) {
  for (const DType dtype : {DType::float32, DType::bfloat16})
    for (const Family family : {Family::llama, Family::gpt2})
      for (const BlockOperations& recompute : {BlockOperations(), attention_internals, whole_block})
        for (const int stages : {1, 2, 4}) {
          const bool is_gpt2 = family == Family::gpt2;
          RunConfig config = config_of(
              {.family = family, .heads = 4, .kv_heads = is_gpt2 ? 4 : 2, .head_dim = 16, .hidden = 64, .inner = 192},
              dtype);
          config.training.seq_len = 64;
          config.training.recompute = recompute;
          config.parallelism.pipeline_parallel_degree = stages;
          const auto arena_bytes = [&](std::int64_t layers_of_first) {
            std::vector<std::int64_t> layout(static_cast<std::size_t>(stages), 1);
            layout[0] = layers_of_first;
            config.model.num_hidden_layers = layers_of_first + stages - 1;
            config.parallelism.pipeline_parallel_layout.counts = layout;
            const Blueprint blueprint(config);
            return blueprint.rank(0).arena_bytes();
          };
          const Block block = block_of(config, 0);
          const std::int64_t D = block.D, width = block.H * block.C, kv_width = block.K * block.C, F = block.F;
          const std::int64_t matrices = 2 * D * width + 2 * D * kv_width + (block.G + 1) * D * F;
          const std::int64_t vectors = 2 * block.S * D + (is_gpt2 ? width + 2 * kv_width + D + F + D : 0);
          const Bytes per_parameter = dtype == DType::bfloat16 ? 2 + 4 + 4 + 8 : 4 + 4 + 8;
          const Bytes expected =
              (matrices + vectors) * per_parameter + stages * (formulas::kept(block, recompute) + block.x());
          EXPECT_EQ(arena_bytes(7) - arena_bytes(6), expected)
              << name_of(dtype) << ", " << (is_gpt2 ? "gpt2" : "llama") << ", " << stages << " stages";
        }
}

}  // namespace
}  // namespace echelon::testing
