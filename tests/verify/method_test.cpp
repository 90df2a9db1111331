// Injected faults of context parallelism by all_gather, ulysses and ulysses_ring are named.
#include "verify/context_layout.h"
#include "verify/exchange_plants.h"
#include "verify/ring_plants.h"

namespace echelon::testing {
namespace {

class MethodPlants : public ::testing::TestWithParam<PlantedInContext> {};

TEST_P(MethodPlants, AreNamed) { expect_named(GetParam()); }

std::vector<PlantedInContext> planted_in_methods() {
  using enum FaultKind;
  using enum LoadBalancer;
  using enum ContextMethod;
  const FaultKind boundary = FaultKind::wrong_document, padding = FaultKind::visible_padding,
                  stale = FaultKind::stale_block;
  const ContextLayout gathered2 = {.method = all_gather}, gathered3 = {.cp = 3, .method = all_gather};
  const ContextLayout gathered_tp = {
      .cp = 3, .tp = 2, .balancer = striped, .family = Family::qwen3, .method = all_gather};
  const ContextLayout gathered_documents = {
      .cp = 3, .balancer = packed, .documents = true, .seq_len = 24, .positions = true, .method = all_gather};
  const ContextLayout heads2 = {.method = ulysses}, heads4 = {.cp = 4, .method = ulysses},
                      heads_staged = {.cp = 2, .pp = 2, .balancer = striped, .method = ulysses},
                      heads_documents = {.balancer = per_document, .documents = true, .seq_len = 24, .method = ulysses};
  const ContextLayout both4 = {.cp = 4, .method = ulysses_ring, .ulysses = 2},
                      both6 = {.cp = 6, .balancer = striped, .seq_len = 25, .method = ulysses_ring, .ulysses = 2},
                      both_shared = {.cp = 4, .method = ulysses_ring, .ulysses = 2, .kv_heads = 1},
                      both_documents = {.cp = 4,
                                        .balancer = striped,
                                        .documents = true,
                                        .seq_len = 24,
                                        .method = ulysses_ring,
                                        .ulysses = 2};
  const std::string own_start = "counted from the start of the rank's own tokens", out = "layers.0.self_attn.o_proj",
                    k = "layers.1.self_attn.k_proj", in_layer = "model.layers.0.self_attn";
  const auto documents_later = [](const ContextLayout& layout, int by) {
    return moved_documents_by(context_config(layout), context_tokens(), by);
  };
  return {
      // positions counted from the rank's own start
      {"Positions_all_gather", gathered2, positions_from_own_start(""), wrong_position, "cp", in_layer, own_start},
      {"Positions_all_gather_tp", gathered_tp, positions_from_own_start("layers.1"), wrong_position, "cp",
       "layers.1.self_attn", own_start},
      {"Positions_ulysses", heads2, positions_from_own_start(""), wrong_position, "cp", in_layer, own_start},
      {"Positions_ulysses_ring", both6, positions_from_own_start(""), wrong_position, "cp", in_layer, own_start},
      {"Order_all_gather", gathered2, rows_in_rank_order(), wrong_position, "cp", "keys of model.layers.0",
       "have the values of positions"},
      {"Order_ulysses", heads2, rows_in_rank_order(), wrong_position, "cp", in_layer},
      // a rank's keys missing or taken twice
      {"KeysMissing_all_gather", gathered3, gathered_keys(InPlace::zeros, 1, false), missing_block, "cp",
       "keys of model.layers.0", "attends to zeros in place of the keys of rank"},
      {"KeysMissing_all_gather_tp", gathered_tp, gathered_keys(InPlace::zeros, 2, false), missing_block, "cp",
       "keys of model.layers.0"},
      {"KeysMissing_backward", gathered3, gathered_keys(InPlace::zeros, 1, true), missing_block, "cp",
       "keys of model.layers.1"},
      {"KeysMissing_recomputed",
       {.cp = 3, .recompute = whole_block, .method = all_gather},
       gathered_keys(InPlace::zeros, 1, true),
       missing_block,
       "cp",
       "keys of model.layers.1"},
      {"KeyRowsMissing", gathered_documents, lost_key_rows(), missing_block, "cp", "keys of model.layers.0"},
      {"KeyRowsMissing_ring",
       {.cp = 3, .balancer = packed, .documents = true, .seq_len = 24},
       lost_key_rows(),
       missing_block,
       "cp",
       "keys of model.layers.0"},
      {"KeysTwice", gathered3, gathered_keys(InPlace::own, 2, false), repeated_block, "cp", "keys of model.layers.0",
       "once more, in place of the keys of rank"},
      {"StaleKeys", gathered3, gathered_keys(InPlace::keys_before, 1, false), stale, "cp", "keys of model.layers.0",
       "gathered before"},
      {"StaleKeys_backward", gathered2, gathered_keys(InPlace::keys_before, 1, true), stale, "cp",
       "keys of model.layers.1"},
      {"TokensMissing_ulysses", heads4, lost_part_of_exchange(1, false), missing_block, "cp",
       "queries of model.layers.0", "the queries of rank 1"},
      {"TokensMissing_ulysses_ring", both4, lost_part_of_exchange(1, false), missing_block, "cp",
       "queries of model.layers.0"},
      // heads that do not come home
      {"HeadsMissing", heads4, lost_part_of_exchange(3, true), FaultKind::missing_gather, "cp", out, "are zero"},
      {"HeadsExchanged", heads4, exchanged_results(), exchanged_heads, "cp", out, "has the values of head"},
      {"HeadsExchanged_ulysses_ring", both6, exchanged_results(), exchanged_heads, "cp", out},
      // blocks of the ring across groups
      {"HopTooFew", both6, wrong_merge(Merging::left_out, 2), missing_block, "cp", out, "hop 2, the last, is missing"},
      {"BlockTwice", both6, wrong_merge(Merging::twice, 1), repeated_block, "cp", out, "hop 1 counts twice"},
      {"Averaged", both4, wrong_merge(Merging::averaged, 0), unmerged_parts, "cp", out, "averaged"},
      {"Averaged_documents", both_documents, wrong_merge(Merging::averaged, 0), unmerged_parts, "cp", out},
      {"StaleBlock", both6, block_of_hop_before(2, false, false), stale, "cp", "keys of model.layers.0", "hop before"},
      {"StaleBlock_backward", both4, block_of_hop_before(1, true, false), stale, "cp", "keys of model.layers.1"},
      // gradients of keys and values
      {"OwnBlockAlone_all_gather", gathered3, missing_gradients(0), own_block_only, "cp", k},
      {"OwnBlockAlone_all_gather_tp", gathered_tp, missing_gradients(0), own_block_only, "cp", "layers.1.self_attn.k_"},
      {"OwnBlockAlone_all_gather_documents", gathered_documents, missing_gradients(0), own_block_only, "cp", k},
      {"MissingPart_all_gather", gathered3, missing_gradients(1), missing_block, "cp", k,
       "of the rank 1 place after in the cp group is missing"},
      {"OwnBlockAlone_ulysses_ring", both6, missing_additions({4, 5}), own_block_only, "cp", k},
      {"MissingPartOfQueries_ulysses_ring", both6, missing_additions({1}), missing_block, "cp",
       "layers.1.self_attn.q_proj"},
      {"StrayGradient_all_gather",
       {.cp = 3, .seq_len = 12, .method = all_gather},
       gradients_of_next_rank(),
       stray_gradient,
       "cp",
       k,
       "did not come home"},
      {"StrayGradient_ulysses_ring",
       {.cp = 6, .seq_len = 24, .method = ulysses_ring, .ulysses = 2},
       gradients_that_stay_abroad(),
       stray_gradient,
       "cp",
       k},
      {"OneReplica", heads4, gradients_of_one_replica(0), one_replica, "cp", k, "the query heads of the first alone"},
      {"OneReplica_second", heads4, gradients_of_one_replica(1), one_replica, "cp", k, "number 1 alone"},
      {"OneReplica_ulysses_ring", both_shared, gradients_of_one_replica(0), one_replica, "cp", k},
      // which keys are seen
      {"WrongMask_all_gather", gathered3, ranges_of_next_rank(), wrong_ranges, "cp", "range of keys of model.layers.0",
       "like those of the queries of rank"},
      {"WrongMask_ulysses_ring", both6, own_mask(2, false), wrong_ranges, "cp", "range of keys of model.layers.0"},
      {"WrongMask_backward", both4, own_mask(1, true), wrong_ranges, "cp", "range of keys of model.layers.1"},
      {"Boundary_all_gather", gathered_documents, documents_later(gathered_documents, 1), boundary, "cp",
       "range of keys"},
      {"Boundary_ulysses", heads_documents, documents_later(heads_documents, -1), boundary, "cp", "range of keys"},
      {"Boundary_ulysses_ring", both_documents, documents_later(both_documents, 1), boundary, "cp", "range of keys"},
      {"Padding_ulysses_ring",
       {.cp = 4, .balancer = none, .method = ulysses_ring, .ulysses = 2},
       testing::visible_padding(),
       padding,
       "cp",
       "range of keys of model.layers.0"},
      // what all methods share
      {"MissingSum_all_gather", gathered3, sum_over_samples_alone(), missing_sum, "cp", ""},
      {"MissingSum_ulysses", heads_staged, sum_over_samples_alone(), missing_sum, "cp", ""},
      {"OwnTargetsMean_ulysses", heads4, mean_over_own_targets(true), mean_of_means, "cp", ""},
      {"LossTimesCp_ulysses_ring", both4, loss_times_cp(), repeated_sum, "cp", ""},
      {"LostTarget_all_gather", gathered2, lost_targets(), lost_target, "cp", "targets",
       "where the next token is on another rank"},
      {"LostTarget_ulysses", heads_staged, lost_targets(), lost_target, "cp", "targets"},
  };
}

INSTANTIATE_TEST_SUITE_P(Of, MethodPlants, ::testing::ValuesIn(planted_in_methods()),
                         [](const auto& row) { return row.param.name; });

// With a fault that does nothing, heads are exchanged by operations of their own. The sweep's rows are controls too
// (tests/parity/sweep/verify_test.cpp).
TEST(MethodControls, UnplantedLayoutsAreEqual) {
  for (const ContextMethod method : {ContextMethod::all_gather, ContextMethod::ulysses, ContextMethod::ulysses_ring})
    for (const LoadBalancer balancer : load_balancers) {
      const ContextLayout layout = {.cp = 4,
                                    .tp = method == ContextMethod::all_gather ? 2 : 1,
                                    .balancer = balancer,
                                    .documents = true,
                                    .seq_len = 22,
                                    .method = method,
                                    .ulysses = method == ContextMethod::ulysses_ring ? 2 : 0};
      EXPECT_TRUE(context_verdict(layout, grow([] { return std::make_unique<Plant>(); })).is_equal());
    }
}

}  // namespace
}  // namespace echelon::testing
