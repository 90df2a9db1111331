// Results of the blocks of a ring with more than 2^31 elements are merged, against the same of some of their rows
// alone. ECHELON_SIZES=long runs it; otherwise tensors have 2^17 elements.
#include "large/large_tensor.h"
#include "ops/cpu/cpu_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

namespace echelon::testing {
namespace {

constexpr std::int64_t D = 4096, C = 64, H = D / C;

Tensor heads(const Tensor& x) { return x.reshaped({1, x.size(0), H, C}); }

TEST(LargeBlocks, AreMergedRowByRow) {
  const std::int64_t T = num_large_rows(D);
  const std::vector<RowWindow> windows = windows_of(D);
  const Sizes sizes = {T, D};
  const std::unique_ptr<Ops> ops = make_cpu_ops({.num_threads = 2});
  const LargeTensor part(DType::bfloat16, sizes, 1);
  LargeTensor out(DType::bfloat16, sizes, 2);
  const SmallTensor lse = small_values(DType::float32, {1, H, T}, 3),
                    part_lse = small_values(DType::float32, {1, H, T}, 4);
  out.keep(windows);
  const auto rows_of = [&](const Tensor& statistic, RowWindow window) {
    SmallTensor alone(DType::float32, {1, H, window.count});
    for (std::int64_t h = 0; h < H; ++h)
      std::copy_n(statistic.as<float>() + h * T + window.first, window.count, alone->as<float>() + h * window.count);
    return alone;
  };
  std::vector<SmallTensor> outs, lses;
  for (const RowWindow& window : windows) {
    outs.emplace_back(out->rows(window.first, window.count));
    lses.push_back(rows_of(lse, window));
  }
  ops->merge_attention({.out = heads(out), .lse = lse, .part = heads(part), .part_lse = part_lse});
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const RowWindow window = windows[i];
    ops->merge_attention({.out = heads(outs[i]),
                          .lse = lses[i],
                          .part = heads(part->rows(window.first, window.count)),
                          .part_lse = rows_of(part_lse, window)});
    EXPECT_TRUE(has_same_bytes(out->rows(window.first, window.count), outs[i])) << "rows from " << window.first;
    EXPECT_TRUE(has_same_bytes(rows_of(lse, window), lses[i]));
  }
}

}  // namespace
}  // namespace echelon::testing
