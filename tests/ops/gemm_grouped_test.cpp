// Matmuls of few rows read their other factor without packing it, those of many rows are divided among threads: every
// bit is that of the packed product.
#include "ops/cpu/gemm_grouped.h"

#include "numbers.h"
#include "ops/cpu/gemm_streamed.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace echelon {
namespace {

struct Form {
  const char* name;
  bool transpose_a, transpose_b, accumulates;
  DType c;
};

/// The three products of a layer: with as many rows as tokens, or, in the last one, sums over them.
std::vector<Form> forms(DType dtype) {
  std::vector<Form> all = {{"forward", false, true, false, DType::float32},
                           {"input gradient", false, false, false, DType::float32},
                           {"input gradient, added", false, false, true, DType::float32},
                           {"weight gradient", true, false, true, DType::float32}};
  if (is_half_dtype(dtype))
    for (const bool transpose_b : {false, true})
      for (const bool accumulates : {false, true}) all.push_back({"rounded", false, transpose_b, accumulates, dtype});
  return all;
}

/// Products with `tokens` rows each, of an outer and an inner width.
struct Grouped {
  std::vector<Numbers> a, b, c;
  std::vector<GemmProduct> products;

  Grouped(const Form& form, DType dtype, const std::vector<std::int64_t>& tokens, std::int64_t N, std::int64_t K) {
    const auto factor = [](Numbers& x, bool is_transposed) {
      return Factor{x.tensor().data, x.tensor().size(1), is_transposed};
    };
    for (const std::int64_t T : tokens) {
      const std::int64_t m = form.transpose_a ? K : T, k = form.transpose_a ? T : K;
      a.push_back(Numbers::random(dtype, form.transpose_a ? Sizes{k, m} : Sizes{m, k}, 1));
      b.push_back(Numbers::random(dtype, form.transpose_b ? Sizes{N, k} : Sizes{k, N}, 2));
      c.push_back(Numbers::random(form.c, {m, N}, 3));
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::int64_t m = c[i].tensor().size(0), k = a[i].tensor().size(form.transpose_a ? 0 : 1);
      products.push_back({.a = factor(a[i], form.transpose_a),
                          .b = factor(b[i], form.transpose_b),
                          .c = c[i].tensor().data,
                          .c_stride = N,
                          .c_dtype = form.c,
                          .m = m,
                          .n = N,
                          .k = k,
                          .accumulates = form.accumulates});
    }
  }
};

void expect_bits_of_packed_products(const std::string& name, const GemmKernels& kernels) {
  const std::vector<std::int64_t> tokens = {1, 9, 28, 35, 77, 250};
  for (const Form& form : forms(kernels.dtype))
    for (const auto& [N, K] : {std::array<std::int64_t, 2>{64, 64}, {64, 1602}, {576, 130}}) {
      const Grouped packed(form, kernels.dtype, tokens, N, K);
      for (const GemmProduct& g : packed.products) multiply(kernels, g, 1);
      for (const int num_threads : {1, 3}) {
        const Grouped grouped(form, kernels.dtype, tokens, N, K);
        multiply_all(kernels, grouped.products, num_threads);
        for (std::size_t i = 0; i < tokens.size(); ++i)
          EXPECT_TRUE(grouped.c[i] == packed.c[i])
              << fmt::format("{}, {}: {} tokens, {} x {}, {} threads", name, form.name, tokens[i], N, K, num_threads);
        if (kernels.streamed == nullptr || kernels.streamed() == nullptr) continue;
        EXPECT_TRUE(streamed_dim(kernels, grouped.products.front())) << name << ", " << form.name;
      }
    }
}

TEST(GemmGrouped, BitsAreThoseOfPackedProducts) {
  expect_bits_of_packed_products("float32", float32_kernels());
  expect_bits_of_packed_products("widening bfloat16", widening_kernels(DType::bfloat16));
  expect_bits_of_packed_products("widening float16", widening_kernels(DType::float16));
  if (const GemmKernels* native = bfloat16_kernels()) expect_bits_of_packed_products("native", *native);
}

// Tiles have whole vectors of columns, or pairs of values along k.
TEST(GemmGrouped, ProductsOfOddWidthsAndOfManyRowsArePacked) {
  const auto dim_of = [](const Form& form, DType dtype, const GemmKernels& kernels, std::int64_t N, std::int64_t K,
                         std::int64_t tokens = 16) {
    const Grouped grouped(form, dtype, {tokens}, N, K);
    return streamed_dim(kernels, grouped.products.front());
  };
  const std::vector<Form> all = forms(DType::float32);
  for (const Form& form : all) EXPECT_FALSE(dim_of(form, DType::float32, float32_kernels(), 64, 64, 193)) << form.name;
  EXPECT_FALSE(dim_of(all[1], DType::float32, float32_kernels(), 70, 64));
  EXPECT_FALSE(dim_of(all[3], DType::float32, float32_kernels(), 70, 64));
  const GemmKernels* native = bfloat16_kernels();
  if (native == nullptr) return;
  EXPECT_FALSE(dim_of(all[0], DType::bfloat16, *native, 64, 63));
  EXPECT_FALSE(dim_of(all[1], DType::bfloat16, *native, 64, 63));
}

}  // namespace
}  // namespace echelon
