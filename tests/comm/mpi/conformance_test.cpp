// The MPI transport passes the conformance suite. Started by mpirun: every process runs every test, and takes part where the mesh has its rank.
#include "comm/conformance.h"
#include "comm/mpi/mpi_world.h"
#include "comm/mpi/processes.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

/// Runs a test of the suite on as many processes as its meshes want; those of larger meshes are left to a larger job. Through MPI
/// alone, reading one another's memory, and both side by side: as if every two ranks were on a machine of their own.
void conform(const std::function<void(const conformance::RunRanks&)>& test) {
  int num_runs = 0;
  const std::function<bool(int, int)> ways[] = {[](int, int) { return false; }, [](int, int) { return true; }, [](int a, int b) { return a / 2 == b / 2; }};
  for (const auto& reads_memory : ways)
    test([&](const MeshShape& shape, const std::function<void(Mesh&)>& body) {
      if (shape.num_ranks() > num_processes()) return;
      ++num_runs;
      run_first_mpi_ranks(shape, {.timeout_seconds = 120, .reads_memory = reads_memory}, body);
    });
  if (num_runs == 0) GTEST_SKIP() << "needs more than " << num_processes() << " processes";
}

TEST(MpiComm, AllReduceAddsInRankOrder) { conform(conformance::all_reduce_adds_in_rank_order); }
TEST(MpiComm, AllReduceTakesTheMaximum) { conform(conformance::all_reduce_takes_the_maximum); }
TEST(MpiComm, AllGatherConcatenates) { conform(conformance::all_gather_concatenates); }
TEST(MpiComm, ReduceScatterLeavesEachRankItsPart) { conform(conformance::reduce_scatter_leaves_each_rank_its_part); }
TEST(MpiComm, BroadcastCopiesTheRoot) { conform(conformance::broadcast_copies_the_root); }
TEST(MpiComm, AllToAllTransposes) { conform(conformance::all_to_all_transposes); }
TEST(MpiComm, TransfersArriveInOrder) { conform(conformance::transfers_arrive_in_order); }
TEST(MpiComm, BarrierWaitsForAll) { conform(conformance::barrier_waits_for_all); }
TEST(MpiComm, ManyOperationsMayBeInFlight) { conform(conformance::many_operations_may_be_in_flight); }
TEST(MpiComm, RanksMayWaitInDifferentOrders) { conform(conformance::ranks_may_wait_in_different_orders); }
TEST(MpiComm, PollingAloneFinishes) { conform(conformance::polling_alone_finishes); }
TEST(MpiComm, GroupsAreThoseOfTheMesh) { conform(conformance::groups_are_those_of_the_mesh); }
TEST(MpiComm, LargeBuffers) { conform(conformance::large_buffers); }
TEST(MpiComm, TwoRunsGiveTheSameBits) { conform(conformance::two_runs_give_the_same_bits); }
TEST(MpiComm, BytesSentAreTheClosedForms) { conform(conformance::bytes_sent_are_the_closed_forms); }
TEST(MpiComm, WrongArgumentsAreRefused) { conform(conformance::wrong_arguments_are_refused); }

}  // namespace
}  // namespace echelon
