// Injected faults of context parallelism are named, over load balancers and layouts.
#include "verify/verify.h"

#include "base/error.h"
#include "data/masked_batches.h"
#include "spec/groups.h"
#include "verify/ring_plants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

struct RingLayout {
  int cp = 2, replicate = 1, shard = 1, tp = 1, pp = 1;
  bool sequence_parallel = false;
  LoadBalancer balancer = LoadBalancer::headtail;
  bool documents = false;
  Family family = Family::llama;
  int zero = 1;
  BlockOperations recompute = {};
  int seq_len = 13, micro_batch_size = 1, microbatches = 2;
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  bool positions = false;  // that restart at documents
  int window = 0;          // of the layers after the first
};

RunConfig ring_config(const RingLayout& layout) {
  RunConfig config;
  ModelSpec& model = config.model;
  model = family_defaults(layout.family);
  model.num_attention_heads = 4;
  model.num_key_value_heads = layout.family == Family::gpt2 ? 4 : 2;
  model.head_dim = 4;
  model.hidden_size = 16;
  model.num_hidden_layers = 2;
  model.intermediate_size = 23;
  model.vocab_size = 41;
  model.max_position_embeddings = 32;
  model.initializer_range = 0.15;
  config.data.reset_attention_mask = layout.documents;
  config.data.reset_position_ids = layout.positions;
  model.sliding_window = layout.window;
  model.max_window_layers = layout.window > 0 ? 1 : 0;
  config.training.steps = 3;
  config.training.seq_len = layout.seq_len;
  config.training.micro_batch_size = layout.micro_batch_size;
  config.training.global_batch_size = layout.micro_batch_size * layout.microbatches * layout.replicate * layout.shard;
  config.training.dtype = DType::float64;
  config.training.recompute = layout.recompute;
  config.optimizer.lr = 1e-2;
  config.optimizer.eps = 1e-7;
  ParallelConfig& p = config.parallelism;
  p.data_parallel_replicate_degree = layout.replicate;
  p.data_parallel_shard_degree = layout.shard;
  p.tensor_parallel_degree = layout.tp;
  p.sequence_parallel = layout.sequence_parallel;
  p.pipeline_parallel_degree = layout.pp;
  p.pipeline_parallel_schedule = layout.schedule;
  p.context_parallel_degree = layout.cp;
  p.context_parallel_load_balancer = layout.balancer;
  p.zero_level = layout.zero;
  return config;
}

const FormulaTokens formula_tokens(1, 41);
const UnevenTargets uneven_targets(formula_tokens, 1);

Verdict ring_verdict(const RingLayout& layout, const Interpose& interpose) {
  return verify(ring_config(layout), uneven_targets, {.num_steps = 2, .interpose = interpose});
}

struct PlantedInRing {
  std::string name;
  RingLayout layout;
  Seed seed;
  FaultKind kind;
  std::string axis, tensor;  // `tensor`: what the finding's tensor must contain
  std::string evidence = "";
};

void PrintTo(const PlantedInRing& planted, std::ostream* out) { *out << planted.name; }

// Claim (checks): `echelon verify` names faults of context parallelism: in positions, targets,
//   masks, blocks of the ring and sums over cp.
// Bound: kind, axis and tensor of each of 49 faults of 17 kinds.
// Tests: RingPlants
class RingPlants : public ::testing::TestWithParam<PlantedInRing> {};

TEST_P(RingPlants, AreNamed) {
  const PlantedInRing& planted = GetParam();
  const Verdict verdict = ring_verdict(planted.layout, grow(planted.seed));
  ASSERT_FALSE(verdict.is_equal());
  const Finding& finding = verdict.diagnosis->finding;
  SCOPED_TRACE(verdict.diagnosis->sentence());
  RecordProperty("sentence", verdict.diagnosis->sentence());
  EXPECT_EQ(name_of(finding.kind), name_of(planted.kind));
  EXPECT_EQ(finding.axis, planted.axis);
  EXPECT_NE(finding.tensor.find(planted.tensor), std::string::npos) << finding.tensor;
  EXPECT_NE(finding.evidence.find(planted.evidence), std::string::npos) << finding.evidence;
  // Of a fault over several axes, the others keep their part.
  if (planted.axis == "cp") {
    EXPECT_THAT(verdict.diagnosis->gone_without, ::testing::Contains("cp"));
  }
}

std::vector<PlantedInRing> planted_in_ring() {
  using enum FaultKind;
  using enum LoadBalancer;
  const FaultKind boundary = FaultKind::wrong_document, padding = FaultKind::visible_padding,
                  stale = FaultKind::stale_block;
  const RingLayout two, three = {.cp = 3}, four = {.cp = 4}, sharded = {.shard = 2};
  const RingLayout tp_sp = {.tp = 2, .sequence_parallel = true, .seq_len = 14}, staged = {.cp = 3, .pp = 2};
  const RingLayout striped3 = {.cp = 3, .balancer = striped}, chunks3 = {.cp = 3, .balancer = none};
  const RingLayout recomputed = {.cp = 3, .recompute = whole_block},
                   qwen3 = {.cp = 3, .tp = 2, .family = Family::qwen3};
  const RingLayout documents = {.cp = 2, .documents = true, .seq_len = 24},
                   striped_documents = {.cp = 3, .balancer = striped, .documents = true, .seq_len = 24},
                   packed3 = {.cp = 3, .balancer = packed, .documents = true, .seq_len = 24, .positions = true},
                   per_document2 = {.balancer = per_document, .documents = true, .seq_len = 24, .positions = true};
  const auto reduce = ActionKind::reduce_gradients;
  return {
      // positions counted from the rank's own start
      {"Positions_headtail", two, positions_from_own_start(""), wrong_position, "cp", "layers.0.self_attn",
       "counted from the start of the rank's own tokens"},
      {"Positions_striped", striped3, positions_from_own_start("layers.1"), wrong_position, "cp", "layers.1.self_attn"},
      {"Positions_none_tp",
       {.tp = 2, .balancer = none},
       positions_from_own_start(""),
       wrong_position,
       "cp",
       "layers.0.self_attn"},
      {"Positions_learned",
       {.cp = 3, .family = Family::gpt2},
       positions_from_own_start(""),
       wrong_position,
       "cp",
       "layers.0.input_layernorm"},
      {"Positions_recomputed", recomputed, positions_from_own_start("layers.0"), wrong_position, "cp",
       "layers.0.self_attn"},
      // the sum over cp
      {"MissingSum", three, sum_over_samples_alone(), missing_sum, "cp", ""},
      {"MissingSum_sharded", sharded, sum_over_samples_alone(), missing_sum, "cp", ""},
      {"MissingSum_of_both", sharded, sum_of_gradient("model.layers.1.mlp.up_proj.weight", reduce, 0), missing_sum,
       "dp_shard+cp", "layers.1"},
      {"DoubledSum", striped3, sum_of_gradient("model.layers.0.mlp.up_proj.weight", reduce, 2), repeated_sum, "cp",
       "layers.0"},
      {"LossTimesCp", staged, loss_times_cp(), repeated_sum, "cp", ""},
      {"OwnLoss", two, own_loss(), missing_sum, "cp", ""},
      {"LocalNorm", three, local_norm(), missing_sum, "cp", "", "not summed over cp"},
      {"MissingGather", two, testing::missing_gather(), stale_weight, "cp", ""},
      // a mean over each rank's own targets
      {"OwnTargets_loss", three, mean_over_own_targets(true), mean_of_means, "cp", ""},
      {"OwnTargets_gradient", striped3, mean_over_own_targets(false), mean_of_means, "cp", ""},
      {"OwnTargets_sharded",
       {.shard = 2, .balancer = none},
       mean_over_own_targets(true),
       mean_of_means,
       "dp_shard+cp",
       ""},
      // blocks of the ring
      {"HopTooFew", three, wrong_merge(Merging::left_out, 2), missing_block, "cp", "layers.0.self_attn.o_proj",
       "hop 2, the last, is missing"},
      {"HopTooFew_two",
       {.tp = 2, .balancer = striped},
       wrong_merge(Merging::left_out, 1),
       missing_block,
       "cp",
       "layers.0.self_attn.o_proj"},
      {"HopTooFew_staged", staged, wrong_merge(Merging::left_out, 1), missing_block, "cp", "layers.0.self_attn.o_proj",
       "hop 1 is missing"},
      {"HopTooFew_packed", packed3, wrong_merge(Merging::left_out, 1), missing_block, "cp", "layers.0.self_attn.o_proj",
       "hop 1 is missing"},
      {"BlockTwice", four, wrong_merge(Merging::twice, 2), repeated_block, "cp", "layers.0.self_attn.o_proj",
       "hop 2 counts twice"},
      {"Averaged_headtail", two, wrong_merge(Merging::averaged, 0), unmerged_parts, "cp", "layers.0.self_attn.o_proj",
       "averaged"},
      {"Averaged_documents", striped_documents, wrong_merge(Merging::averaged, 0), unmerged_parts, "cp",
       "layers.0.self_attn.o_proj", "averaged"},
      {"Added", qwen3, wrong_merge(Merging::added, 0), unmerged_parts, "cp", "layers.0.self_attn.o_proj", "added"},
      {"StaleBlock_forward", three, block_of_hop_before(2, false, false), stale, "cp", "keys of model.layers.0",
       "hop before"},
      {"StaleBlock_backward", four, block_of_hop_before(2, true, false), stale, "cp", "keys of model.layers.1"},
      {"StaleBlock_backward_sp", tp_sp, block_of_hop_before(1, true, false), stale, "cp", "keys of model.layers.1"},
      {"StaleValues", chunks3, block_of_hop_before(1, false, true), stale, "cp", "values of model.layers.0"},
      // gradients of blocks
      {"OwnBlockAlone", two, missing_additions({1, 2}), own_block_only, "cp", "layers.1.self_attn.k_proj"},
      {"OwnBlockAlone_qwen3", qwen3, missing_additions({4, 5}), own_block_only, "cp", "layers.1.self_attn.k_"},
      {"OwnBlockAlone_values", striped3, missing_additions({5}), own_block_only, "cp", "layers.1.self_attn.v_proj"},
      {"MissingPartOfKeys", three, missing_additions({2}), missing_block, "cp", "layers.1.self_attn.k_proj",
       "the part from the queries of the rank 2 places after"},
      {"MissingPartOfQueries", three, missing_additions({1}), missing_block, "cp", "layers.1.self_attn.q_proj",
       "the part from the keys of the rank 2 places before"},
      {"OwnBlockAlone_packed", packed3, missing_additions({4, 5}), own_block_only, "cp", "layers.1.self_attn.k_proj"},
      {"OwnBlockAlone_per_document", per_document2, missing_additions({1, 2}), own_block_only, "cp",
       "layers.1.self_attn.k_proj"},
      {"StrayGradient",
       {.cp = 3, .seq_len = 12},
       gradients_that_stay_abroad(),
       stray_gradient,
       "cp",
       "layers.1.self_attn.k_proj"},
      // which keys are seen
      {"WrongMask_forward", three, own_mask(1, false), wrong_ranges, "cp", "range of keys of model.layers.0"},
      {"WrongMask_backward", striped3, own_mask(2, true), wrong_ranges, "cp", "range of keys of model.layers.1"},
      {"WrongMask_window",
       {.cp = 3, .family = Family::qwen2, .window = 4},
       own_mask(1, true),
       wrong_ranges,
       "cp",
       "range of keys of model.layers.1"},
      {"WrongMask_documents", documents, own_mask(1, false), wrong_ranges, "cp", "range of keys of model.layers.0"},
      {"Boundary_late", documents, moved_documents_by(ring_config(documents), formula_tokens, 1), boundary, "cp",
       "range of keys of model.layers.0"},
      {"Boundary_early", striped_documents, moved_documents_by(ring_config(striped_documents), formula_tokens, -1),
       boundary, "cp", "range of keys"},
      {"Boundary_packed", packed3, moved_documents_by(ring_config(packed3), formula_tokens, 1), boundary, "cp",
       "range of keys"},
      {"Padding", two, testing::visible_padding(), padding, "cp", "range of keys of model.layers.0"},
      {"Padding_striped",
       {.cp = 4, .balancer = striped, .micro_batch_size = 2},
       testing::visible_padding(),
       padding,
       "cp",
       "range of keys"},
      // targets and tokens
      {"LostTarget", two, lost_targets(), lost_target, "cp", "targets", "where the next token is on another rank"},
      {"LostTarget_none", {.cp = 4, .pp = 2, .balancer = none}, lost_targets(), lost_target, "cp", "targets"},
      {"OwnTargets", {.cp = 3, .balancer = striped}, own_targets(), wrong_target, "cp", "targets"},
      {"OtherSequence",
       {.cp = 2, .shard = 2, .microbatches = 3},
       other_sequence_on(1),
       wrong_sequence,
       "cp",
       "layers.0"},
  };
}

INSTANTIATE_TEST_SUITE_P(Of, RingPlants, ::testing::ValuesIn(planted_in_ring()),
                         [](const auto& row) { return row.param.name; });

// Without a fault, and with one that does nothing.
TEST(RingControls, UnplantedLayoutsAreEqual) {
  for (const LoadBalancer balancer : {LoadBalancer::headtail, LoadBalancer::none, LoadBalancer::striped})
    for (const RingLayout& layout :
         {RingLayout{.cp = 3, .pp = 2, .balancer = balancer},
          RingLayout{.shard = 2,
          .tp = 2,
          .sequence_parallel = true,
          .balancer = balancer,
          .documents = true,
          .family = Family::qwen3,
          .zero = 3},
          RingLayout{.cp = 4, .balancer = balancer, .family = Family::gpt2, .recompute = whole_block}}) {
      EXPECT_TRUE(ring_verdict(layout, {}).is_equal());
      EXPECT_TRUE(ring_verdict(layout, grow([] { return std::make_unique<Plant>(); })).is_equal());
    }
  for (const LoadBalancer balancer : {LoadBalancer::per_document, LoadBalancer::packed})
    for (const Family family : {Family::gpt2, Family::qwen3})
      EXPECT_TRUE(ring_verdict({.cp = 3,
                                .shard = 2,
                                .balancer = balancer,
                                .documents = true,
                                .family = family,
                                .seq_len = 24,
                                .positions = true},
                               grow([] { return std::make_unique<Plant>(); }))
                      .is_equal());
  EXPECT_TRUE(
      ring_verdict({.cp = 3, .family = Family::qwen2, .window = 4}, grow([] { return std::make_unique<Plant>(); }))
          .is_equal());
}

}  // namespace
}  // namespace echelon::testing
