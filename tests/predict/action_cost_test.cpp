// Where a wait stands in an action's list: on a device a communication runs beside the operations between its start and
// its wait; on a host the same cores move its bytes, where the transport is called.
#include "predict/step/action_cost.h"

#include "predict/host/host_step.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

constexpr double compute_seconds = 1, exchange_seconds = 0.25;

double on_device(const CostEvents& events) {
  return events.seconds([](const CommRecord&) { return exchange_seconds; });
}

const CommRecord exchange = {.kind = CommKind::all_gather, .group = {}, .group_size = 2};

TEST(ActionCost, OnADeviceAMovedWaitIsGrantedTheOperationsTime) {
  EXPECT_DOUBLE_EQ(on_device({compute_seconds, exchange, CommWait{0}, compute_seconds}), 2.25);
  EXPECT_DOUBLE_EQ(on_device({compute_seconds, exchange, compute_seconds, CommWait{0}}), 2);
}

TEST(ActionCost, CommunicationIsOneLaneAndEndsTheAction) {
  EXPECT_DOUBLE_EQ(on_device({exchange, exchange, compute_seconds, CommWait{1}}), 1);
  EXPECT_DOUBLE_EQ(on_device({exchange, exchange, exchange, exchange, exchange, compute_seconds, CommWait{4}}), 1.25);
  EXPECT_DOUBLE_EQ(on_device({compute_seconds, exchange}), 1.25);  // left in progress
}

TEST(ActionCost, OperationsBetweenCommunicationAreOneEvent) {
  const CommRecord alone = {.kind = CommKind::all_reduce, .group = {}, .group_size = 1};
  const CallTrace trace = {.events = {OpRecord{.m = 1}, OpRecord{.m = 2}, alone, CommWait{0}, OpRecord{.m = 3},
                                      exchange, CommWait{1}, OpRecord{.m = 4}}};
  const CostEvents events =
      cost_events(trace, [](const OpRecord& operation) { return static_cast<double>(operation.m); });
  EXPECT_EQ(events, (CostEvents{6.0, exchange, CommWait{0}, 4.0}));
}

/// Two ranks on two cores with one exchange, whose bytes cost both cores together `exchange_seconds`.
RankPieces pieces_of(const std::vector<Piece>& pieces, const Program& program) {
  RankPieces all;
  for (int rank = 0; rank < 2; ++rank) {
    all.ranks.push_back({{Piece::Kind::begin, 0, -1, {}}});
    all.ranks.back().insert(all.ranks.back().end(), pieces.begin(), pieces.end());
    all.programs.push_back(&program);
  }
  all.exchanges = {{.num_parties = 2, .work = 2 * exchange_seconds, .is_done_by_the_last = false, .group = "tp"}};
  return all;
}

TEST(ActionCost, OnAHostAMovedWaitIsGrantedWhatThePollsGive) {
  HostSpec host;
  host.num_cores = 2;
  const HostTime time(host, 2);
  const Program program = {{.kind = ActionKind::forward, .stage = 0, .id = 0}};
  const Piece compute = {Piece::Kind::compute, -1, -1, {compute_seconds, compute_seconds}};
  const Piece join = {Piece::Kind::join, -1, 0, {}}, wait = {Piece::Kind::wait, -1, 0, {}},
              poll = {Piece::Kind::poll, -1, -1, {}};
  const auto seconds = [&](const std::vector<Piece>& pieces) {
    return seconds_of_pieces(pieces_of(pieces, program), time, 1);
  };
  // The cores that compute also copy, so a moved wait hides nothing.
  EXPECT_DOUBLE_EQ(seconds({compute, join, wait, compute}), 2.25);
  EXPECT_DOUBLE_EQ(seconds({compute, join, compute, wait}), 2.25);
  // The rank that polls after both have come copies all by itself, while the other one computes: 1 + 2 * 0.25 + 1.
  EXPECT_DOUBLE_EQ(seconds({compute, join, poll, compute, wait}), 2.5);
}

}  // namespace
}  // namespace echelon
