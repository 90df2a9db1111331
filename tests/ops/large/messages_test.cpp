// Collectives of more than 2^31 elements between two thread ranks: rows before, at and after that place arrive.
// ECHELON_SIZES=long runs them; otherwise tensors have 2^17 elements.
#include "comm/comm.h"
#include "comm/mesh.h"
#include "comm/thread/thread_world.h"
#include "large/large_tensor.h"
#include "ops/cpu/cpu_ops.h"
#include "spec/groups.h"

#include <gtest/gtest.h>

#include <functional>

namespace echelon::testing {
namespace {

constexpr std::int64_t row_elements = 4096;

class LargeMessages : public ::testing::Test {
 protected:
  static void communicate(const std::function<Pending(Comm&, int rank)>& start) {
    run_thread_ranks(MeshShape({{Axis::tp, 2}}), {.timeout_seconds = 300},
                     [&](Mesh& mesh) { start(mesh.comm(tp_group), mesh.rank()).wait(); });
  }
  static void expect_rows(const Tensor& actual, const Tensor& expected, RowWindow window) {
    EXPECT_TRUE(has_same_bytes(actual.rows(window.first, window.count), expected)) << "rows from " << window.first;
  }

  const std::int64_t N = num_large_rows(row_elements), half = N / 2;
  const std::vector<RowWindow> windows = windows_of(row_elements);
  const Sizes sizes = {N, row_elements};
  LargeTensor first{DType::bfloat16, sizes, 1}, second{DType::bfloat16, sizes, 2};
};

// Sums of two multiples of 1/8 have no rounding.
TEST_F(LargeMessages, AreSummed) {
  const auto ops = make_cpu_ops();
  std::vector<SmallTensor> sums;
  for (const RowWindow& window : windows) {
    sums.emplace_back(DType::bfloat16, Sizes{window.count, row_elements});
    ops->add(sums.back(), first->rows(window.first, window.count), second->rows(window.first, window.count));
  }
  LargeTensor shards[2] = {{DType::bfloat16, sizes, 3}, {DType::bfloat16, sizes, 4}};
  for (LargeTensor& shard : shards) shard.clear(windows);
  // Of the first half and the second: each rank's shard is at its place in a tensor of the whole size.
  communicate([&](Comm& comm, int rank) {
    const Tensor full = rank == 0 ? first : second;
    return comm.reduce_scatter(shards[rank]->rows(rank * half, half), full, ReduceOp::sum);
  });
  for (std::size_t i = 0; i < windows.size(); ++i)
    expect_rows(shards[windows[i].first < half ? 0 : 1], sums[i], windows[i]);
  first.keep(windows);
  second.keep(windows);
  communicate([&](Comm& comm, int rank) { return comm.all_reduce(rank == 0 ? first : second, ReduceOp::sum); });
  for (std::size_t i = 0; i < windows.size(); ++i) {
    expect_rows(first, sums[i], windows[i]);
    expect_rows(second, sums[i], windows[i]);
  }
}

TEST_F(LargeMessages, AreGatheredAndExchanged) {
  LargeTensor gathered[2] = {{DType::bfloat16, sizes, 3}, {DType::bfloat16, sizes, 4}};
  const auto of_rank = [&](int rank) -> const Tensor& { return rank == 0 ? first : second; };
  for (LargeTensor& full : gathered) full.clear(windows);
  communicate(
      [&](Comm& comm, int rank) { return comm.all_gather(gathered[rank], of_rank(rank).rows(rank * half, half)); });
  for (const LargeTensor& full : gathered)
    for (const RowWindow& window : windows)
      expect_rows(full, of_rank(window.first < half ? 0 : 1).rows(window.first, window.count), window);
  for (LargeTensor& full : gathered) full.clear(windows);
  communicate([&](Comm& comm, int rank) { return comm.all_to_all(gathered[rank], of_rank(rank)); });
  // Part i of a rank comes from rank i, of which it was part `rank`.
  for (int rank = 0; rank < 2; ++rank)
    for (const RowWindow& window : windows) {
      const int source = window.first < half ? 0 : 1;
      expect_rows(gathered[rank], of_rank(source).rows(window.first % half + rank * half, window.count), window);
    }
}

TEST_F(LargeMessages, AreSent) {
  second.clear(windows);
  communicate([&](Comm& comm, int rank) { return rank == 0 ? comm.send(first, 1) : comm.receive(second, 0); });
  for (const RowWindow& window : windows) expect_rows(second, first->rows(window.first, window.count), window);
  second.clear(windows);
  communicate([&](Comm& comm, int rank) { return comm.broadcast(rank == 0 ? first : second, 0); });
  for (const RowWindow& window : windows) expect_rows(second, first->rows(window.first, window.count), window);
}

}  // namespace
}  // namespace echelon::testing
