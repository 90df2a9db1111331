// The delayed transport keeps the contract of communicators, and finds programs that break it.
#include "base/error.h"
#include "comm/conformance.h"
#include "comm/delayed/delayed_mesh.h"
#include "comm/numbers.h"
#include "comm/thread/thread_world.h"

#include <gmock/gmock.h>

#include <cmath>

namespace echelon {
namespace {

using conformance::Buffer;
using conformance::line;
using conformance::line_group;
using conformance::numbers;
using ::testing::HasSubstr;

void run(const MeshShape& shape, const std::function<void(Mesh&)>& body) {
  run_thread_ranks(shape, {.timeout_seconds = 60}, [&](Mesh& inner) {
    DelayedMesh mesh(inner, 7);
    body(mesh);
  });
}

TEST(DelayedComm, AllReduceAddsInRankOrder) { conformance::all_reduce_adds_in_rank_order(run); }
TEST(DelayedComm, AllGatherConcatenates) { conformance::all_gather_concatenates(run); }
TEST(DelayedComm, ReduceScatterLeavesEachRankItsPart) { conformance::reduce_scatter_leaves_each_rank_its_part(run); }
TEST(DelayedComm, BroadcastCopiesTheRoot) { conformance::broadcast_copies_the_root(run); }
TEST(DelayedComm, AllToAllTransposes) { conformance::all_to_all_transposes(run); }
TEST(DelayedComm, AllToAllMovesRows) { conformance::all_to_all_moves_rows(run); }
TEST(DelayedComm, TransfersArriveInOrder) { conformance::transfers_arrive_in_order(run); }
TEST(DelayedComm, BarrierWaitsForAll) { conformance::barrier_waits_for_all(run); }
TEST(DelayedComm, ManyOperationsMayBeInFlight) { conformance::many_operations_may_be_in_flight(run); }
TEST(DelayedComm, RanksMayWaitInDifferentOrders) { conformance::ranks_may_wait_in_different_orders(run); }
TEST(DelayedComm, PollingAloneFinishes) { conformance::polling_alone_finishes(run); }
TEST(DelayedComm, GroupsAreThoseOfTheMesh) { conformance::groups_are_those_of_the_mesh(run); }
TEST(DelayedComm, BytesSentAreTheClosedForms) { conformance::bytes_sent_are_the_closed_forms(run); }
TEST(DelayedComm, WrongArgumentsAreRefused) { conformance::wrong_arguments_are_refused(run); }

// Runs a program on two ranks that breaks the contract; the sentence that it ends with.
std::string failure_of(const std::function<void(Comm&)>& program) {
  try {
    run(line(2), [&](Mesh& mesh) { program(mesh.comm(line_group)); });
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), ExitStatus::failure);
    return error.what();
  }
  return "";
}

TEST(DelayedComm, WhatIsReadBeforeTheWaitIsPoison) {
  for (const DType dtype : conformance::all_dtypes)
    run(line(2), [&](Mesh& mesh) {
      Comm& comm = mesh.comm(line_group);
      const auto expect_poison = [&](const Buffer& x, std::int64_t i) {
        if (dtype == DType::int32)
          EXPECT_EQ(x.get(i), 0x7f7f7f7f);
        else
          EXPECT_TRUE(std::isnan(x.get(i))) << name_of(dtype);
      };
      Buffer x = numbers(dtype, 10, comm.rank()), full = numbers(dtype, 20, comm.rank());
      Pending reduced = comm.all_reduce(x.tensor(), ReduceOp::sum);
      Pending scattered = comm.reduce_scatter(full.tensor().rows(10 * comm.rank(), 10), full.tensor(), ReduceOp::sum);
      for (std::int64_t i = 0; i < 10; ++i) {
        expect_poison(x, i);
        expect_poison(full, 10 * comm.rank() + i);
        EXPECT_EQ(full.get(10 * (1 - comm.rank()) + i),
                  numbers(dtype, 20, comm.rank()).get(10 * (1 - comm.rank()) + i));
      }
      while (!reduced.poll()) expect_poison(x, 9);
      scattered.wait();
      conformance::expect_same(x, conformance::reduced(dtype, 10, 2, ReduceOp::sum), "all_reduce after the wait");
    });
}

TEST(DelayedComm, FindsASendBufferThatIsOverwrittenBeforeTheWait) {
  const std::string failure = failure_of([](Comm& comm) {
    Buffer x = numbers(DType::float32, 10, comm.rank());
    if (comm.rank() == 0) {
      Pending sent = comm.send(x.tensor(), 1);
      x.set(3, 0);
      sent.wait();
    } else {
      comm.receive(x.tensor(), 0).wait();
    }
  });
  EXPECT_THAT(failure, HasSubstr("rank 0: the input of send in group dp_replicate on rank 0 was written before the "
                                 "operation was waited for: element 3 of 10"));
}

TEST(DelayedComm, FindsAnOutputThatIsWrittenBeforeTheWait) {
  const std::string failure = failure_of([](Comm& comm) {
    Buffer x = numbers(DType::bfloat16, 10, comm.rank());
    Pending reduced = comm.all_reduce(x.tensor(), ReduceOp::sum);
    if (comm.rank() == 1) x.set(9, 1);
    reduced.wait();
  });
  EXPECT_THAT(failure, HasSubstr("rank 1: the output of all_reduce in group dp_replicate on rank 1 was written"));
}

TEST(DelayedComm, FindsAPartOfAReducedBufferThatIsOverwrittenBeforeTheWait) {
  const std::string failure = failure_of([](Comm& comm) {
    Buffer full = numbers(DType::float32, 20, comm.rank());
    Pending scattered = comm.reduce_scatter(full.tensor().rows(10 * comm.rank(), 10), full.tensor(), ReduceOp::sum);
    if (comm.rank() == 1) full.set(0, 1);
    scattered.wait();
  });
  EXPECT_THAT(failure, HasSubstr("rank 1: the input of reduce_scatter in group dp_replicate on rank 1 was written"));
}

}  // namespace
}  // namespace echelon
