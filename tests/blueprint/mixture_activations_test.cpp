// docs/internals/memory.md against the plan: what a block with experts keeps for its backward pass, to the byte.
#include "blueprint/activation_formulas.h"
#include "blueprint/planned_stage.h"
#include "blueprint/small_config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

namespace echelon::testing {
namespace {

using formulas::Bytes;

struct Experts {
  int ep = 1;
  std::int64_t E = 8, k = 2;
  double bound = 1.2;
  bool has_shared = false;
  int etp = 1;
};

RunConfig config_with(const Experts& experts, DType dtype) {
  RunConfig config;
  config.model = family_defaults(experts.has_shared ? Family::qwen2_moe : Family::mixtral);
  ModelSpec& model = config.model;
  model.num_hidden_layers = 5;
  model.num_attention_heads = 6;
  model.num_key_value_heads = 3;
  model.head_dim = 10;
  model.hidden_size = 44;
  model.vocab_size = 128;
  model.max_position_embeddings = 64;
  model.mixture.num_experts = experts.E;
  model.mixture.num_experts_per_tok = experts.k;
  model.intermediate_size = model.mixture.moe_intermediate_size = 22;
  if (experts.has_shared) model.mixture.shared_expert_intermediate_size = 34;
  config.training.dtype = dtype;
  config.training.seq_len = 13;
  config.training.micro_batch_size = 2;
  config.training.global_batch_size = 8 * experts.ep * experts.etp;
  config.parallelism.data_parallel_shard_degree = experts.ep * experts.etp;
  config.parallelism.expert_parallel_degree = experts.ep;
  config.parallelism.expert_tensor_parallel_degree = experts.etp;
  config.parallelism.pipeline_parallel_degree = 3;
  config.parallelism.pipeline_parallel_layout.counts = {1, 3, 1};
  config.moe.dispatch_bound = experts.bound;
  return config;
}

/// Of attention, and of h.
Bytes kept_before(const RunConfig& config, BlockOperations recompute) {
  for (const BlockOperation part : parts_of_mixture)  // any of them computes the statistics of the second norm
    if (recompute.contain(part)) recompute.add(BlockOperation::mlp);
  const ModelSpec& model = config.model;
  formulas::Block block;
  block.N = block.n = config.training.micro_batch_size * config.training.seq_len;
  block.D = model.hidden_size;
  block.H = model.num_attention_heads;
  block.K = model.num_key_value_heads;
  block.C = model.head_dim;
  block.e = size_of(config.training.dtype);
  block.a = size_of(accumulate_dtype(config.training.dtype));
  block.S = 1;
  return formulas::kept(block, recompute);
}

Bytes kept_of_experts(const RunConfig& config, const Experts& experts, const BlockOperations& recompute) {
  const MixtureSpec& mixture = config.model.mixture;
  const std::int64_t N = config.training.micro_batch_size * config.training.seq_len, D = config.model.hidden_size,
                     L = experts.etp, F = mixture.moe_intermediate_size / L, E = experts.E, P = experts.ep,
                     R = N * experts.k, ever = P * N * std::min(experts.k, E / P),
                     bound = static_cast<std::int64_t>(std::ceil(experts.bound * static_cast<double>(R))),
                     Q = P * L == 1 ? R : L * std::min(ever, bound);
  const Bytes e = size_of(config.training.dtype), a = size_of(accumulate_dtype(config.training.dtype));
  Bytes kept = 2 * aligned(4 * R) + aligned(a * R) + aligned(4 * (E + 1));  // experts and slots, weights, offsets
  if (P * L > 1) kept += aligned(4 * P * L * (E + 1));                      // of all ranks
  const bool keeps_rows = !recompute.contain(BlockOperation::experts);
  if (!recompute.contain(BlockOperation::router)) kept += aligned(a * N * E);  // logits
  if (keeps_rows) kept += 2 * aligned(e * Q * F);                              // gate and up
  if (keeps_rows && P * L > 1) kept += aligned(4 * Q) + aligned(a * Q) + aligned(4 * (E / P + 1)) + aligned(e * Q * D);
  if (experts.has_shared && !recompute.contain(BlockOperation::shared_expert))
    kept += 2 * aligned(e * N * mixture.shared_expert_intermediate_size) + aligned(a * N);
  return kept;
}

TEST(MixtureActivations, AreThePlan) {
  using Part = BlockOperation;
  for (const Experts& experts : {Experts{},
                                 {.E = 5, .k = 3},
                                 {.ep = 2},
                                 {.ep = 4, .bound = 0.3},
                                 {.ep = 4, .k = 4, .bound = 9},
                                 {.has_shared = true},
                                 {.ep = 2, .has_shared = true},
                                 {.ep = 2, .bound = 0.7, .etp = 2},
                                 {.k = 3, .etp = 2}})
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64})
      for (const BlockOperations& recompute :
           {BlockOperations(), BlockOperations{Part::mlp}, attention_internals, BlockOperations{Part::router},
            BlockOperations{Part::experts}, BlockOperations{Part::core_attn, Part::shared_expert}}) {
        if (recompute.contain(Part::shared_expert) && !recompute.contain(Part::mlp) && !experts.has_shared) continue;
        SCOPED_TRACE(fmt::format("ep {}, etp {}, E {}, k {}, bound {}, {}{}, {}", experts.ep, experts.etp, experts.E,
                                 experts.k, experts.bound, name_of(dtype), experts.has_shared ? ", shared" : "",
                                 fmt::join(names_of(recompute), " ")));
        RunConfig config = config_with(experts, dtype);
        config.training.recompute = recompute;
        const Bytes x = aligned(size_of(dtype) * 26 * 44);
        EXPECT_EQ(planned_stage(config, one_f_one_b_schedule(3, 4), 0).stash,
                  3 * (kept_before(config, recompute) + kept_of_experts(config, experts, recompute)) + 2 * x);
      }
}

}  // namespace
}  // namespace echelon::testing
