// Injected faults of context parallelism are named, in rings and of what every method has, over load balancers and
// layouts. Of the other methods: method_test.cpp.
#include "verify/context_layout.h"
#include "verify/ring_plants.h"

namespace echelon::testing {
namespace {

// Claim (checks): `echelon verify` names faults of context parallelism: in positions, targets,
//   masks, blocks of keys, exchanges of heads and sums over cp.
// Bound: kind, axis and tensor of each of 99 faults of 20 kinds, over all methods.
// Tests: RingPlants|MethodPlants
class RingPlants : public ::testing::TestWithParam<PlantedInContext> {};

TEST_P(RingPlants, AreNamed) { expect_named(GetParam()); }

std::vector<PlantedInContext> planted_in_ring() {
  using enum FaultKind;
  using enum LoadBalancer;
  const FaultKind boundary = FaultKind::wrong_document, padding = FaultKind::visible_padding,
                  stale = FaultKind::stale_block;
  const ContextLayout two, three = {.cp = 3}, four = {.cp = 4}, sharded = {.shard = 2};
  const ContextLayout tp_sp = {.tp = 2, .sequence_parallel = true, .seq_len = 14}, staged = {.cp = 3, .pp = 2};
  const ContextLayout striped3 = {.cp = 3, .balancer = striped}, chunks3 = {.cp = 3, .balancer = none};
  const ContextLayout recomputed = {.cp = 3, .recompute = whole_block},
                      qwen3 = {.cp = 3, .tp = 2, .family = Family::qwen3};
  const ContextLayout documents = {.cp = 2, .documents = true, .seq_len = 24},
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
      {"Boundary_late", documents, moved_documents_by(context_config(documents), context_tokens(), 1), boundary, "cp",
       "range of keys of model.layers.0"},
      {"Boundary_early", striped_documents, moved_documents_by(context_config(striped_documents), context_tokens(), -1),
       boundary, "cp", "range of keys"},
      {"Boundary_packed", packed3, moved_documents_by(context_config(packed3), context_tokens(), 1), boundary, "cp",
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
    for (const ContextLayout& layout :
         {ContextLayout{.cp = 3, .pp = 2, .balancer = balancer},
          ContextLayout{.shard = 2,
          .tp = 2,
          .sequence_parallel = true,
          .balancer = balancer,
          .documents = true,
          .family = Family::qwen3,
          .zero = 3},
          ContextLayout{.cp = 4, .balancer = balancer, .family = Family::gpt2, .recompute = whole_block}}) {
      EXPECT_TRUE(context_verdict(layout, {}).is_equal());
      EXPECT_TRUE(context_verdict(layout, grow([] { return std::make_unique<Plant>(); })).is_equal());
    }
  for (const LoadBalancer balancer : {LoadBalancer::per_document, LoadBalancer::packed})
    for (const Family family : {Family::gpt2, Family::qwen3})
      EXPECT_TRUE(context_verdict({.cp = 3,
                                   .shard = 2,
                                   .balancer = balancer,
                                   .documents = true,
                                   .family = family,
                                   .seq_len = 24,
                                   .positions = true},
                                  grow([] { return std::make_unique<Plant>(); }))
                      .is_equal());
  EXPECT_TRUE(
      context_verdict({.cp = 3, .family = Family::qwen2, .window = 4}, grow([] { return std::make_unique<Plant>(); }))
          .is_equal());
}

}  // namespace
}  // namespace echelon::testing
