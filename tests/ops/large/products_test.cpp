// Matmuls and attention whose operands or results have more than 2^31 elements, against the same of some of their rows
// alone. ECHELON_SIZES=long runs them; otherwise tensors have 2^17 elements.
#include "large/large_tensor.h"
#include "ops/cpu/cpu_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

namespace echelon::testing {
namespace {

constexpr std::int64_t D = 4096, K = 16;

/// Products of values that are multiples of 1/8 have no rounding, in any order.
class LargeProducts : public ::testing::TestWithParam<DType> {
 protected:
  const DType dtype = GetParam();
  const std::int64_t N = num_large_rows(D);
  const std::vector<RowWindow> windows = windows_of(D);
  const std::unique_ptr<Ops> ops = make_cpu_ops({.num_threads = 2});
};

TEST_P(LargeProducts, OfManyRowsAndColumns) {
  const SmallTensor a = small_values(dtype, {N, K}, 1), b = small_values(dtype, {K, D}, 2);
  LargeTensor c(dtype, {N, D}, 3);
  ops->matmul({.a = a, .b = b, .c = c.clear(windows)});
  for (const RowWindow& window : windows) {
    const SmallTensor alone(dtype, {window.count, D});
    ops->matmul({.a = a->rows(window.first, window.count), .b = b, .c = alone});
    EXPECT_TRUE(has_same_bytes(c->rows(window.first, window.count), alone)) << "rows from " << window.first;
  }
}

TEST_P(LargeProducts, OfManyLongRows) {
  const LargeTensor a(dtype, {N, D}, 1);
  const SmallTensor b = small_values(dtype, {K, D}, 2), c(dtype, {N, K}), turned(dtype, {K, N});
  ops->matmul({.a = a, .b = b, .c = c, .transpose_b = true});
  ops->matmul({.a = b, .b = a, .c = turned, .transpose_b = true});
  for (const RowWindow& window : windows) {
    const SmallTensor alone(dtype, {window.count, K}), turned_alone(dtype, {K, window.count});
    const Tensor rows = a->rows(window.first, window.count);
    ops->matmul({.a = rows, .b = b, .c = alone, .transpose_b = true});
    ops->matmul({.a = b, .b = rows, .c = turned_alone, .transpose_b = true});
    EXPECT_TRUE(has_same_bytes(c->rows(window.first, window.count), alone)) << "rows from " << window.first;
    for (std::int64_t k = 0; k < K; ++k)
      EXPECT_TRUE(
          has_same_bytes(turned->rows(k, 1).flat().rows(window.first, window.count), turned_alone->rows(k, 1).flat()));
  }
}

// The gradient of a weight: only the last rows of one factor are not zero.
TEST_P(LargeProducts, OverManyRows) {
  const LargeTensor x(dtype, {N, D}, 1);
  const SmallTensor dy(dtype, {N, K}), dw(DType::float32, {K, D}), alone(DType::float32, {K, D});
  constexpr std::int64_t count = 8;
  ops->fill(dy, 0);
  ops->copy(dy->rows(N - count, count), small_values(dtype, {count, K}, 2));
  ops->matmul({.a = dy, .b = x, .c = dw, .transpose_a = true});
  ops->matmul({.a = dy->rows(N - count, count), .b = x->rows(N - count, count), .c = alone, .transpose_a = true});
  EXPECT_TRUE(has_same_bytes(dw, alone));
}

INSTANTIATE_TEST_SUITE_P(Of, LargeProducts, ::testing::Values(DType::bfloat16, DType::float32),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

// Documents of 32 tokens, of which some are computed alone.
class LargeAttention : public ::testing::Test {
 protected:
  static constexpr std::int64_t C = 64, H = D / C, document = 32;
  const std::int64_t T = num_small_elements() / D + 128;
  // Whole documents at multiples of 64 tokens.
  const std::vector<RowWindow> windows = {{0, 64}, {num_small_elements() / D, 64}, {T - 64, 64}};
  const Sizes sizes = {T, D};
  const std::unique_ptr<Ops> ops = make_cpu_ops({.num_threads = 2});

  [[nodiscard]] static Tensor heads(const Tensor& x) { return x.reshaped({1, x.size(0), H, C}); }
  [[nodiscard]] static std::vector<std::int32_t> begins(std::int64_t count) {
    std::vector<std::int32_t> of_rows(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i)
      of_rows[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i / document * document);
    return of_rows;
  }
  [[nodiscard]] static AttentionMask mask(std::vector<std::int32_t>& of_rows) {
    return {.begin = Tensor(of_rows.data(), DType::int32, {1, std::ssize(of_rows)})};
  }
  static constexpr double scale = 0.125;
};

TEST_F(LargeAttention, IsThatOfDocumentsAlone) {
  const DType dtype = DType::bfloat16;
  const LargeTensor q(dtype, sizes, 1), k(dtype, sizes, 2), v(dtype, sizes, 3), dout(dtype, sizes, 4);
  LargeTensor out(dtype, sizes, 5), dq(dtype, sizes, 6), dk(dtype, sizes, 7), dv(dtype, sizes, 8);
  LargeTensor dq_sums(DType::float32, sizes, 9);
  const SmallTensor lse(DType::float32, {1, H, T}), delta(DType::float32, {1, H, T});
  std::vector<std::int32_t> of_rows = begins(T);
  ops->attention({.q = heads(q),
                  .k = heads(k),
                  .v = heads(v),
                  .out = heads(out.clear(windows)),
                  .lse = lse,
                  .scale = scale,
                  .mask = mask(of_rows)});
  ops->attention_backward({.q = heads(q),
                           .k = heads(k),
                           .v = heads(v),
                           .out = heads(out),
                           .lse = lse,
                           .dout = heads(dout),
                           .dq = heads(dq.clear(windows)),
                           .dk = heads(dk.clear(windows)),
                           .dv = heads(dv.clear(windows)),
                           .delta = delta,
                           .scale = scale,
                           .mask = mask(of_rows),
                           .dq_sums = heads(dq_sums.keep(windows))});
  for (const RowWindow& window : windows) {
    const std::int64_t n = window.count;
    const auto rows = [&](const Tensor& x) { return heads(x.rows(window.first, n)); };
    const SmallTensor out_alone(dtype, {1, n, H, C}), dq_alone(dtype, {1, n, H, C}), dk_alone(dtype, {1, n, H, C}),
        dv_alone(dtype, {1, n, H, C}), lse_alone(DType::float32, {1, H, n}), delta_alone(DType::float32, {1, H, n});
    std::vector<std::int32_t> rows_alone = begins(n);
    ops->attention({.q = rows(q),
                    .k = rows(k),
                    .v = rows(v),
                    .out = out_alone,
                    .lse = lse_alone,
                    .scale = scale,
                    .mask = mask(rows_alone)});
    ops->attention_backward({.q = rows(q),
                             .k = rows(k),
                             .v = rows(v),
                             .out = out_alone,
                             .lse = lse_alone,
                             .dout = rows(dout),
                             .dq = dq_alone,
                             .dk = dk_alone,
                             .dv = dv_alone,
                             .delta = delta_alone,
                             .scale = scale,
                             .mask = mask(rows_alone)});
    SCOPED_TRACE(window.first);
    for (const auto& [whole, alone] :
         {std::pair<const Tensor&, const Tensor&>(out, out_alone), {dq, dq_alone}, {dk, dk_alone}, {dv, dv_alone}}) {
      const auto* a = whole.rows(window.first, n).as<bfloat16>();
      const auto* b = alone.as<bfloat16>();
      for (std::int64_t i = 0; i < n * D; ++i)
        ASSERT_NEAR(to<float>(a[i]), to<float>(b[i]), 2e-2 + 1e-2 * std::abs(to<float>(b[i]))) << "element " << i;
    }
  }
}

}  // namespace
}  // namespace echelon::testing
