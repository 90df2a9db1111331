// Mechanisms of other families than those of the sweep, in every kind of layout: what one rank computes.
#include "parity/layout.h"
#include "parity/locks.h"
#include "parity/training_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

namespace echelon::testing {
namespace {

struct Mechanisms {
  const char* name;
  void (*set)(ModelSpec& model);  // of a model with its number of layers
};

void set_yarn(ModelSpec& m) {
  m.mlp = MlpKind::geglu;
  m.qkv_bias = m.o_bias = m.mlp_bias = true;
  m.partial_rotary_factor = 0.5;
  m.rope_scaling = RopeScaling{.rope_type = RopeType::yarn,
                               .factor = 4,
                               .original_max_position_embeddings = 6,
                               .beta_fast = 2,
                               .beta_slow = 0.2};
}

void set_growing_queries(ModelSpec& m) {
  m.rope_scaling = RopeScaling{.rope_type = RopeType::yarn,
                               .factor = 4,
                               .original_max_position_embeddings = 3,
                               .beta_fast = 2,
                               .beta_slow = 0.2,
                               .llama_4_scaling_beta = 0.4};
}

void set_starcoder2(ModelSpec& m) {
  m.norm = NormKind::layer_norm;
  m.mlp = MlpKind::gelu_erf;
  m.o_bias = m.mlp_bias = true;
}

void set_gemma3_windows(ModelSpec& m) {
  m.sliding_window = 4;
  for (std::int64_t i = 0; i < m.num_hidden_layers; ++i) {
    m.layer_types.push_back(i % 3 == 2 ? LayerType::full_attention : LayerType::sliding_attention);
    m.no_rope_layers.push_back(i % 4 == 1 ? 0 : 1);
  }
  m.sliding_rope = RopeSpec{.rope_theta = 100};
  m.rope_scaling = RopeScaling{.rope_type = RopeType::longrope,
                               .factor = 4,
                               .original_max_position_embeddings = 6,
                               .short_factor = {1, 2},
                               .long_factor = {1.5, 4}};
}

void set_gemma2(ModelSpec& m) {
  m.mlp = MlpKind::geglu;
  m.norm_placement = NormPlacement::both;
  m.norm_adds_one = true;
  m.embedding_multiplier = 5.7;
  m.query_pre_attn_scalar = 7;
  m.attn_logit_softcapping = 0.5;
  m.final_logit_softcapping = 2;
  m.tie_word_embeddings = true;
}

void set_norms_after(ModelSpec& m) {
  m.norm_placement = NormPlacement::after;
  m.qk_norm = m.qk_norm_of_projection = true;
  m.norm_rounds_before_gain = true;
}

void set_clips(ModelSpec& m) {
  set_norms_after(m);
  m.clip_qkv = 0.6;
}

void set_granite(ModelSpec& m) {
  m.embedding_multiplier = 3;
  m.residual_multiplier = 0.22;
  m.attention_multiplier = 0.3;
  m.logits_scaling = 4;
}

void set_gpt_neox(ModelSpec& m) {
  set_starcoder2(m);
  m.qkv_bias = m.use_parallel_residual = true;
  m.partial_rotary_factor = 0.5;
}

constexpr Mechanisms all_mechanisms[] = {{"growing_queries", set_growing_queries},
                                         {"yarn", set_yarn},
                                         {"starcoder2", set_starcoder2},
                                         {"gemma3_windows", set_gemma3_windows},
                                         {"gemma2", set_gemma2},
                                         {"norms_after", set_norms_after},
                                         {"clips", set_clips},
                                         {"granite", set_granite},
                                         {"gpt_neox", set_gpt_neox}};

std::vector<Layout> all_kinds_of_layouts() {
  return {{.tp = 2},
          {.tp = 4, .sequence_parallel = true},
          {.pp = 3, .microbatches = 4},
          {.pp = 2, .schedule = PipelineSchedule::zb_h1, .microbatches = 3},
          {.shard = 2, .zero = 3, .layers = 3},
          {.replicate = 2, .layers = 3, .recompute = whole_block},
          {.shard = 2, .tp = 2, .layers = 3, .documents = true, .recompute = attention_internals, .positions = true},
          {.layers = 3, .documents = true, .cp = 2},
          {.tp = 2, .layers = 3, .cp = 3, .balancer = LoadBalancer::striped, .method = ContextMethod::all_gather},
          {.shard = 2, .tp = 2, .pp = 2, .sequence_parallel = true, .microbatches = 3, .tied = true, .cp = 2}};
}

RunConfig config_with(const Layout& layout, const Mechanisms& mechanisms) {
  RunConfig config = config_of(layout);
  config.training.steps = 3;
  mechanisms.set(config.model);
  return config;
}

// Claim (parity): Mechanisms that few families have, such as kinds of RoPE, biases, activations and
//   layer types, compute in ten kinds of layout what one rank computes.
// Bound: 3 steps in float64: parity's bounds.
// Tests: OtherMechanisms
class OtherMechanisms : public ::testing::TestWithParam<Mechanisms> {};

TEST_P(OtherMechanisms, EqualOneRank) {
  for (const Layout& layout : all_kinds_of_layouts()) {
    SCOPED_TRACE(name_of(layout));
    const RunConfig config = config_with(layout, GetParam());
    const auto actual = run_training(config, {.at_end = [&](const RankView& rank) {
                                       expect_locks_hold(rank, {.training = config.training.steps, .evaluation = 1});
                                     }});
    expect_equal(*actual, *run_training(one_rank(config)), 1e-11, 1e-9, config.optimizer.lr);
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, OtherMechanisms, ::testing::ValuesIn(all_mechanisms),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace echelon::testing
