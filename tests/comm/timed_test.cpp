// The timed mesh keeps the contract of communicators and tells of every call once.
#include "comm/conformance.h"
#include "comm/numbers.h"
#include "comm/thread/thread_world.h"
#include "comm/timed/timed_mesh.h"

#include <gtest/gtest.h>

#include <thread>

namespace echelon {
namespace {

void run_timed(const MeshShape& shape, const std::function<void(Mesh&)>& body) {
  run_thread_ranks(shape, {.timeout_seconds = 60}, [&](Mesh& inner) {
    TimedMesh mesh(inner, [](const TimedCall& call) { EXPECT_LE(call.start, call.end); });
    body(mesh);
  });
}

TEST(TimedComm, AllReduceAddsInRankOrder) { conformance::all_reduce_adds_in_rank_order(run_timed); }
TEST(TimedComm, AllGatherConcatenates) { conformance::all_gather_concatenates(run_timed); }
TEST(TimedComm, ReduceScatterLeavesEachRankItsPart) {
  conformance::reduce_scatter_leaves_each_rank_its_part(run_timed);
}
TEST(TimedComm, BroadcastCopiesTheRoot) { conformance::broadcast_copies_the_root(run_timed); }
TEST(TimedComm, AllToAllTransposes) { conformance::all_to_all_transposes(run_timed); }
TEST(TimedComm, AllToAllMovesRows) { conformance::all_to_all_moves_rows(run_timed); }
TEST(TimedComm, TransfersArriveInOrder) { conformance::transfers_arrive_in_order(run_timed); }
TEST(TimedComm, ManyOperationsMayBeInFlight) { conformance::many_operations_may_be_in_flight(run_timed); }
TEST(TimedComm, PollingAloneFinishes) { conformance::polling_alone_finishes(run_timed); }
TEST(TimedComm, BytesSentAreTheClosedForms) { conformance::bytes_sent_are_the_closed_forms(run_timed); }

TEST(TimedComm, TellsHowLongARankWaitedForAnother) {
  constexpr double late_seconds = 0.05;
  run_thread_ranks(conformance::line(2), {}, [&](Mesh& inner) {
    std::vector<TimedCall> calls;
    TimedMesh mesh(inner, [&](const TimedCall& call) { calls.push_back(call); });
    if (mesh.rank() == 1) std::this_thread::sleep_for(std::chrono::duration<double>(late_seconds));
    float x[4] = {};
    mesh.comm(conformance::line_group).all_reduce({x, DType::float32, {4}}, ReduceOp::sum).wait();
    mesh.poll();
    ASSERT_EQ(calls.size(), 3U);
    EXPECT_EQ(calls[0].phase, TimedCall::Phase::start);
    EXPECT_EQ(calls[1].phase, TimedCall::Phase::wait);
    EXPECT_EQ(calls[1].kind, CommKind::all_reduce);
    EXPECT_EQ(calls[1].num_bytes, 16);
    EXPECT_EQ(calls[2].phase, TimedCall::Phase::poll);
    if (mesh.rank() == 1) return;
    EXPECT_GE(calls[1].end - calls[0].start, 0.5 * late_seconds);
  });
}

/// Knows whether operations start together.
class GroupingMesh final : public Mesh {
 public:
  GroupingMesh() : Mesh(MeshShape(), 0) {}
  [[nodiscard]] Comm& comm(const Group& /*group*/) override { throw Failure("there is no communicator"); }
  void poll() override {}
  [[nodiscard]] std::map<Group, std::int64_t> sent_bytes() const override { return {}; }
  void abort(const std::string& /*reason*/) override {}
  void together(const std::function<void()>& start) override {
    is_open = true;
    start();
    is_open = false;
  }
  bool is_open = false;
};

// Else a ring of GPUs that is traced would send before it receives, all ranks at once.
TEST(TimedMesh, StartsOperationsTogether) {
  GroupingMesh inner;
  TimedMesh mesh(inner, [](const TimedCall&) {});
  bool were_together = false;
  mesh.together([&] { were_together = inner.is_open; });
  EXPECT_TRUE(were_together);
}

}  // namespace
}  // namespace echelon
