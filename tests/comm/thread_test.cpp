// The thread transport passes the conformance suite.
#include "comm/conformance.h"
#include "comm/thread/thread_world.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

void run(const MeshShape& shape, const std::function<void(Mesh&)>& body) { run_thread_ranks(shape, {.timeout_seconds = 60}, body); }

TEST(ThreadComm, AllReduceAddsInRankOrder) { conformance::all_reduce_adds_in_rank_order(run); }
TEST(ThreadComm, AllReduceTakesTheMaximum) { conformance::all_reduce_takes_the_maximum(run); }
TEST(ThreadComm, AllGatherConcatenates) { conformance::all_gather_concatenates(run); }
TEST(ThreadComm, ReduceScatterLeavesEachRankItsPart) { conformance::reduce_scatter_leaves_each_rank_its_part(run); }
TEST(ThreadComm, BroadcastCopiesTheRoot) { conformance::broadcast_copies_the_root(run); }
TEST(ThreadComm, AllToAllTransposes) { conformance::all_to_all_transposes(run); }
TEST(ThreadComm, TransfersArriveInOrder) { conformance::transfers_arrive_in_order(run); }
TEST(ThreadComm, BarrierWaitsForAll) { conformance::barrier_waits_for_all(run); }

}  // namespace
}  // namespace echelon
