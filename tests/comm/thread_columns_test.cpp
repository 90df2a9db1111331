// Columns exchanged for rows in one pass: against one element after the other, with padding on both sides.
#include "comm/numbers.h"
#include "comm/thread/thread_world.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace echelon {
namespace {

using conformance::Buffer;

struct Columns {
  int num_ranks;
  std::int64_t N, W;
  DType dtype;
};

/// Rows of all ranks in an order that no rank has, two without a source between them; and where each went.
struct Order {
  std::vector<std::int32_t> by_position, by_rank;
};

Order order_of(const Columns& of) {
  const auto count = static_cast<std::int32_t>(of.num_ranks * of.N);
  Order order;
  order.by_rank.assign(static_cast<std::size_t>(count), -1);
  for (std::int32_t i = 0; i < count; ++i) {
    const std::int32_t row = (i * 7 + 3) % count;  // 7 divides no count of the cases
    if (i == 1 || i == count - 1) order.by_position.push_back(-1);
    if (row == 4) continue;  // padding of its rank
    order.by_rank[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(order.by_position.size());
    order.by_position.push_back(row);
  }
  return order;
}

double value_of(int rank, std::int64_t i) { return rank * 100.0 + static_cast<double>(i % 97); }

Buffer columns_of(DType dtype, std::int64_t count, int rank) {
  Buffer x(dtype, count);
  for (std::int64_t i = 0; i < count; ++i) x.set(i, value_of(rank, i));
  return x;
}

void exchange_both_ways(const Columns& of) {
  const auto& [n, N, W, dtype] = of;
  const Order order = order_of(of);
  const std::int64_t M = std::ssize(order.by_position);
  run_thread_ranks(conformance::line(n), {.timeout_seconds = 60}, [&, n = n, N = N, W = W, dtype = dtype](Mesh& mesh) {
    Comm& comm = mesh.comm(conformance::line_group);
    ASSERT_TRUE(comm.can_exchange_columns());
    const int rank = comm.rank();
    Buffer by_tokens = columns_of(dtype, N * n * W, rank), by_heads(dtype, M * W);
    const Tensor own = by_tokens.tensor().reshaped({N, n, W}), all = by_heads.tensor().reshaped({M, W});
    comm.exchange_columns({.received = all, .sent = own, .rows = order.by_position, .gathers_rows = true}).wait();
    Buffer expected(dtype, M * W);
    for (std::int64_t m = 0; m < M; ++m)
      for (std::int64_t w = 0; w < W; ++w) {
        const std::int64_t row = order.by_position[static_cast<std::size_t>(m)];
        const double x = row < 0 ? 0 : value_of(static_cast<int>(row / N), (row % N * n + rank) * W + w);
        expected.set(m * W + w, x);
      }
    conformance::expect_same(by_heads, expected, "gathered rows");

    Buffer back = columns_of(dtype, M * W, rank);
    const Tensor sent = back.tensor().reshaped({M, W});
    comm.exchange_columns({.received = own, .sent = sent, .rows = order.by_rank, .gathers_rows = false}).wait();
    expected = Buffer(dtype, N * n * W);
    for (std::int64_t i = 0; i < N * n * W; ++i) {
      const std::int64_t row = order.by_rank[static_cast<std::size_t>(rank * N + i / (n * W))];
      expected.set(i, row < 0 ? 0 : value_of(static_cast<int>(i / W % n), row * W + i % W));
    }
    conformance::expect_same(by_tokens, expected, "own rows");
    EXPECT_EQ(mesh.sent_bytes().at(conformance::line_group), 2 * (n - 1) * N * W * size_of(dtype));
  });
}

TEST(ThreadColumns, AreExchangedForRows) {
  exchange_both_ways({2, 5, 3, DType::float32});
  exchange_both_ways({3, 4, 2, DType::float64});
  exchange_both_ways({4, 300, 96, DType::bfloat16});   // more than one thread does
  exchange_both_ways({2, 3, 40'000, DType::float32});  // rows longer than a chunk
}

TEST(ThreadColumns, OfOtherSizesAreRefused) {
  run_thread_ranks(conformance::line(2), {.timeout_seconds = 60}, [](Mesh& mesh) {
    Comm& comm = mesh.comm(conformance::line_group);
    Buffer own(DType::float32, 8), all(DType::float32, 8);
    const std::vector<std::int32_t> rows = {0, 1, 2};
    const Tensor sent = own.tensor().reshaped({2, 2, 2}), received = all.tensor().reshaped({4, 2});
    EXPECT_THROW(static_cast<void>(comm.exchange_columns({.received = received, .sent = sent, .rows = rows})), Error);
    EXPECT_THROW(static_cast<void>(comm.exchange_columns({.received = sent, .sent = sent, .rows = rows})), Error);
  });
}

}  // namespace
}  // namespace echelon
