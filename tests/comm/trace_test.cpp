// What a trace writes down, against the formulas of the papers.
#include "base/error.h"
#include "comm/numbers.h"
#include "comm/trace/trace_mesh.h"

namespace echelon {
namespace {

using conformance::line;
using conformance::line_group;

Tensor traced(DType dtype, std::int64_t num_elements) { return {nullptr, dtype, {num_elements}}; }

// Ring and direct all-reduce alike move 2 (n - 1)/n S per rank (Patarasuk and Yuan 2009), its halves (n - 1)/n S.
TEST(Traffic, IsBandwidthOptimalWhereTheSizeDivides) {
  constexpr std::int64_t S = 1 << 12;
  for (const int n : {1, 2, 4, 8, 64})
    for (const int rank : {0, n - 1}) {
      const auto sent = [&](CommKind kind) {
        return sent_bytes({.kind = kind, .rank = rank, .group_size = n, .num_elements = S, .dtype = DType::bfloat16});
      };
      EXPECT_EQ(sent(CommKind::all_reduce), 2 * 2 * S * (n - 1) / n);
      EXPECT_EQ(sent(CommKind::all_gather), 2 * S * (n - 1) / n);
      EXPECT_EQ(sent(CommKind::reduce_scatter), 2 * S * (n - 1) / n);
      EXPECT_EQ(sent(CommKind::all_to_all), 2 * S * (n - 1) / n);
      EXPECT_EQ(sent(CommKind::broadcast), rank == 0 ? 2 * S * (n - 1) : 0);
      EXPECT_EQ(sent(CommKind::send), 2 * S);
      EXPECT_EQ(sent(CommKind::receive), 0);
      EXPECT_EQ(sent(CommKind::barrier), 0);
    }
}

TEST(Traffic, OfAnAllReduceAddsUpWhereTheSizeDoesNotDivide) {
  for (const std::int64_t S : {0, 1, 5, 7, 1001})
    for (const int n : {1, 2, 3, 9}) {
      std::int64_t sum = 0, next = 0;
      for (int rank = 0; rank < n; ++rank) {
        sum += sent_bytes(
            {.kind = CommKind::all_reduce, .rank = rank, .group_size = n, .num_elements = S, .dtype = DType::float32});
        const OwnedRange part = owned_range(S, rank, n);
        EXPECT_EQ(part.first, next);
        EXPECT_TRUE(part.count == S / n || part.count == S / n + 1);
        next += part.count;
      }
      EXPECT_EQ(next, S);
      EXPECT_EQ(sum, 4 * 2 * (n - 1) * S);
    }
}

TEST(TraceMesh, WritesDownWhatIsCommunicatedWithoutData) {
  TraceMesh mesh(line(4), 2);
  Comm& comm = mesh.comm(line_group);
  EXPECT_EQ(comm.rank(), 2);
  EXPECT_EQ(comm.size(), 4);
  EXPECT_TRUE(comm.all_reduce(traced(DType::float32, 100), ReduceOp::sum).poll());
  comm.reduce_scatter(traced(DType::bfloat16, 8), traced(DType::bfloat16, 32), ReduceOp::sum).wait();
  comm.broadcast(traced(DType::int32, 5), 2).wait();
  comm.send(traced(DType::float64, 3), 1).wait();
  comm.receive(traced(DType::float64, 3), 3).wait();
  comm.barrier().wait();

  const auto record = [](CommKind kind, DType dtype, std::int64_t num_elements, std::int64_t bytes, int peer) {
    return CommRecord{.kind = kind,
                      .group = line_group,
                      .group_size = 4,
                      .dtype = dtype,
                      .num_elements = num_elements,
                      .sent_bytes = bytes,
                      .peer = peer};
  };
  const std::vector<CommRecord> expected = {record(CommKind::all_reduce, DType::float32, 100, 600, -1),
                                            record(CommKind::reduce_scatter, DType::bfloat16, 32, 48, -1),
                                            record(CommKind::broadcast, DType::int32, 5, 60, 2),
                                            record(CommKind::send, DType::float64, 3, 24, 1),
                                            record(CommKind::receive, DType::float64, 3, 0, 3),
                                            record(CommKind::barrier, DType::float32, 0, 0, -1)};
  EXPECT_EQ(mesh.records(), expected);
  EXPECT_EQ(mesh.sent_bytes(), (std::map<Group, std::int64_t>{{line_group, 600 + 48 + 60 + 24}}));
  mesh.clear();
  EXPECT_TRUE(mesh.records().empty());
  EXPECT_EQ(mesh.sent_bytes().at(line_group), 0);
}

TEST(TraceMesh, RefusesWhatTransportsRefuse) {
  TraceMesh mesh(line(4), 2);
  Comm& comm = mesh.comm(line_group);
  EXPECT_THROW((void)comm.all_gather(traced(DType::float32, 9), traced(DType::float32, 2)), Error);
  EXPECT_THROW((void)comm.all_to_all(traced(DType::float32, 9), traced(DType::float32, 9)), Error);
  EXPECT_THROW((void)comm.send(traced(DType::float32, 9), 2), Error);
  EXPECT_TRUE(mesh.records().empty());
}

}  // namespace
}  // namespace echelon
