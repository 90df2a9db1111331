// What every transport must do, written against a function that runs ranks: expected values come from naive loops in
// rank order.
#pragma once

#include "comm/mesh.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace echelon::conformance {

/// Runs body(mesh) on every rank of the shape and returns when all have ended; throws what a rank threw.
using RunRanks = std::function<void(const MeshShape&, const std::function<void(Mesh&)>&)>;

void all_reduce_adds_in_rank_order(const RunRanks& run);
void all_reduce_takes_the_maximum(const RunRanks& run);
void all_gather_concatenates(const RunRanks& run);
void reduce_scatter_leaves_each_rank_its_part(const RunRanks& run);
void broadcast_copies_the_root(const RunRanks& run);
void all_to_all_transposes(const RunRanks& run);
void all_to_all_moves_rows(const RunRanks& run);
void transfers_arrive_in_order(const RunRanks& run);
void barrier_waits_for_all(const RunRanks& run);

void many_operations_may_be_in_flight(const RunRanks& run);
void ranks_may_wait_in_different_orders(const RunRanks& run);
void polling_alone_finishes(const RunRanks& run);
void groups_are_those_of_the_mesh(const RunRanks& run);
void large_buffers(const RunRanks& run);
void two_runs_give_the_same_bits(const RunRanks& run);
void bytes_sent_are_the_closed_forms(const RunRanks& run);
void wrong_arguments_are_refused(const RunRanks& run);

struct Requirement {
  const char* name;
  void (*test)(const RunRanks& run);
};
/// All of them, for INSTANTIATE_TEST_SUITE_P.
inline constexpr Requirement requirements[] = {
    {"AllReduceAddsInRankOrder", all_reduce_adds_in_rank_order},
    {"AllReduceTakesTheMaximum", all_reduce_takes_the_maximum},
    {"AllGatherConcatenates", all_gather_concatenates},
    {"ReduceScatterLeavesEachRankItsPart", reduce_scatter_leaves_each_rank_its_part},
    {"BroadcastCopiesTheRoot", broadcast_copies_the_root},
    {"AllToAllTransposes", all_to_all_transposes},
    {"AllToAllMovesRows", all_to_all_moves_rows},
    {"TransfersArriveInOrder", transfers_arrive_in_order},
    {"BarrierWaitsForAll", barrier_waits_for_all},
    {"ManyOperationsMayBeInFlight", many_operations_may_be_in_flight},
    {"RanksMayWaitInDifferentOrders", ranks_may_wait_in_different_orders},
    {"PollingAloneFinishes", polling_alone_finishes},
    {"GroupsAreThoseOfTheMesh", groups_are_those_of_the_mesh},
    {"LargeBuffers", large_buffers},
    {"TwoRunsGiveTheSameBits", two_runs_give_the_same_bits},
    {"BytesSentAreTheClosedForms", bytes_sent_are_the_closed_forms},
    {"WrongArgumentsAreRefused", wrong_arguments_are_refused}};
inline std::string name_of_requirement(const ::testing::TestParamInfo<Requirement>& requirement) {
  return requirement.param.name;
}

}  // namespace echelon::conformance
