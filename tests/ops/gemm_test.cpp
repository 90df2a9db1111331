// Every kind of kernels against sums in float64, and the claim that a number's bits depend on k alone.
#include "ops/cpu/gemm.h"

#include "numbers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace echelon {
namespace {

struct Kind {
  std::string name;
  const GemmKernels* kernels;
};
std::vector<Kind> kinds() {
  std::vector<Kind> all = {{"float32", &float32_kernels()}, {"widening", &widening_kernels(DType::bfloat16)}};
  if (const GemmKernels* native = bfloat16_kernels()) all.push_back({"native", native});
  if (const GemmKernels* amx = amx_kernels()) all.push_back({"amx", amx});
  return all;
}

struct Case {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b, accumulates;
};

struct Matrices {
  Numbers a, b;

  Matrices(const Case& c, DType dtype)
      : a(Numbers::random(dtype, c.transpose_a ? Sizes{c.k, c.m} : Sizes{c.m, c.k}, 1)),
        b(Numbers::random(dtype, c.transpose_b ? Sizes{c.n, c.k} : Sizes{c.k, c.n}, 2)) {}
};

GemmProduct product_of(const Case& c, const Matrices& x, const Numbers& into) {
  return {.a = {x.a.tensor().data, c.transpose_a ? c.m : c.k, c.transpose_a},
          .b = {x.b.tensor().data, c.transpose_b ? c.k : c.n, c.transpose_b},
          .c = into.tensor().data,
          .c_stride = c.n,
          .c_dtype = into.tensor().dtype,
          .m = c.m,
          .n = c.n,
          .k = c.k,
          .accumulates = c.accumulates};
}

/// |error| <= k eps sum |a b| in float32, and half a unit of what c is stored in (Higham 2002, section 3.5).
void expect_product(const Case& c, const Matrices& x, const Numbers& before, const Numbers& after,
                    const std::string& what) {
  const double rounding = after.tensor().dtype == DType::bfloat16  ? 1.0 / 256
                          : after.tensor().dtype == DType::float16 ? 1.0 / 2048
                                                                   : 0.0;
  for (std::int64_t i = 0; i < c.m; ++i)
    for (std::int64_t j = 0; j < c.n; ++j) {
      double sum = c.accumulates ? before.get(i * c.n + j) : 0, magnitude = std::abs(sum);
      for (std::int64_t l = 0; l < c.k; ++l) {
        const double term =
            x.a.get(c.transpose_a ? l * c.m + i : i * c.k + l) * x.b.get(c.transpose_b ? j * c.k + l : l * c.n + j);
        sum += term;
        magnitude += std::abs(term);
      }
      const double bound = static_cast<double>(c.k + 2) * 0x1p-24 * magnitude + rounding * std::abs(sum) + 1e-30;
      ASSERT_NEAR(after.get(i * c.n + j), sum, bound) << what << " at " << i << ", " << j;
    }
}

TEST(Gemm, EveryKindIsAsGoodAsItsSums) {
  std::vector<Kind> all = kinds();
  all.push_back({"widening float16", &widening_kernels(DType::float16)});
  for (const auto& [name, kernels] : all)
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                                  {5, 7, 3},
                                  {14, 32, 4},
                                  {15, 33, 2},
                                  {29, 65, 131},
                                  {113, 31, 385},
                                  {3, 40, 773},
                                  {2, 1100, 9},
                                  {250, 50, 20},
                                  {6, 35, 6301}})
      for (int bits = 0; bits < 8; ++bits)
        for (const DType into : {DType::float32, kernels->dtype == DType::float16 ? DType::float16 : DType::bfloat16}) {
          const Case c{m, n, k, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
          const Matrices x(c, kernels->dtype);
          const Numbers before = Numbers::random(into, {m, n}, 3);
          Numbers after = before;
          multiply(*kernels, product_of(c, x, after), 1);
          expect_product(c, x, before, after,
                         fmt::format("{} {} {} {} case {} into {}", name, m, n, k, bits, name_of(into)));
        }
}

TEST(Gemm, BitsDependNeitherOnThreadsNorOnTheRowsAndColumnsBeside) {
  for (const auto& [name, kernels] : kinds())
    for (int bits = 0; bits < 4; ++bits) {
      const Case c{211, 1303, 500, (bits & 1) != 0, (bits & 2) != 0, false};
      const Matrices x(c, kernels->dtype);
      const Numbers whole(DType::float32, {c.m, c.n});
      multiply(*kernels, product_of(c, x, whole), 1);
      for (const int num_threads : {2, 3, 7}) {
        const Numbers divided(DType::float32, {c.m, c.n});
        multiply(*kernels, product_of(c, x, divided), num_threads);
        EXPECT_TRUE(divided == whole) << name << " on " << num_threads << " threads";
      }
      constexpr std::int64_t first = 17, rows = 40;
      const Numbers some(DType::float32, {rows, c.n});
      GemmProduct of_some = product_of(c, x, some);
      of_some.m = rows;
      of_some.a.data += first * (c.transpose_a ? 1 : c.k) * size_of(kernels->dtype);
      multiply(*kernels, of_some, 1);
      for (std::int64_t i = 0; i < rows * c.n; ++i)
        ASSERT_EQ(some.get(i), whole.get(first * c.n + i)) << name << " " << i;
    }
}

// The last columns of a matrix are fewer than a tile has.
TEST(Gemm, BitsOfSumsDependNotOnTheColumnsBeside) {
  for (const auto& [name, kernels] : kinds())
    for (const bool transpose_b : {false, true}) {
      const Case c{70, 130, 1100, false, transpose_b, true};
      const Matrices x(c, kernels->dtype);
      const Numbers before = Numbers::random(DType::float32, {c.m, c.n}, 3);
      const Numbers whole = before;
      multiply(*kernels, product_of(c, x, whole), 1);
      constexpr std::int64_t first = 5, columns = 43;
      const Numbers some = before;
      GemmProduct of_some = product_of(c, x, some);
      of_some.n = columns;
      of_some.b.data += first * (c.transpose_b ? c.k : 1) * size_of(kernels->dtype);
      of_some.c += first * size_of(DType::float32);
      multiply(*kernels, of_some, 1);
      for (std::int64_t i = 0; i < c.m; ++i)
        for (std::int64_t j = 0; j < c.n; ++j)
          ASSERT_EQ(some.get(i * c.n + j), (j < first || j >= first + columns ? before : whole).get(i * c.n + j))
              << name << " at " << i << ", " << j;
    }
}

/// Blocks of columns, of k and, where sums of 16 bits are formed in float32, groups of them: threads are in two
/// sections at a time.
TEST(Gemm, BitsDependNotOnThreadsInProductsOfManySections) {
  for (const auto& [name, kernels] : kinds())
    for (const DType into : {DType::float32, DType::bfloat16})
      for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{400, 1400, 1700}, {131, 700, 6301}}) {
        const Case c{m, n, k, false, true, true};
        const Matrices x(c, kernels->dtype);
        const Numbers before = Numbers::random(into, {m, n}, 3);
        const Numbers whole = before;
        multiply(*kernels, product_of(c, x, whole), 1);
        for (const int num_threads : {2, 3, 16}) {
          const Numbers divided = before;
          multiply(*kernels, product_of(c, x, divided), num_threads);
          EXPECT_TRUE(divided == whole) << name << " into " << name_of(into) << " on " << num_threads << " threads";
        }
      }
}

}  // namespace
}  // namespace echelon
