// Rounding to 8 bits against tables of all numbers of the formats, and products in float8 against what the formats say
// of them.
#include "ops/float8.h"

#include "base/error.h"
#include "numbers.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/reference/reference_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace echelon {
namespace {

/// All finite numbers of a format that are not negative, as its bits are defined (Micikevicius et al. 2022, table 1).
std::vector<double> numbers_of(OperandFormat format) {
  const bool is_e4m3 = format == OperandFormat::float8_e4m3;
  const int mantissa_bits = is_e4m3 ? 3 : 2, bias = is_e4m3 ? 7 : 15, num_finite = is_e4m3 ? 0x7f : 0x7c;
  std::vector<double> numbers;
  for (int bits = 0; bits < num_finite; ++bits) {
    const int exponent = bits >> mantissa_bits, fraction = bits & ((1 << mantissa_bits) - 1);
    const double mantissa = static_cast<double>(fraction) / (1 << mantissa_bits);
    numbers.push_back(exponent == 0 ? std::ldexp(mantissa, 1 - bias) : std::ldexp(1 + mantissa, exponent - bias));
  }
  return numbers;
}

constexpr OperandFormat formats[] = {OperandFormat::float8_e4m3, OperandFormat::float8_e5m2};

TEST(Float8, RoundsToTheNearestNumberAndToTheEvenOneOfTwo) {
  for (const OperandFormat which : formats) {
    const Float8 format = float8_of(which);
    const std::vector<double> numbers = numbers_of(which);
    EXPECT_EQ(numbers.back(), format.largest);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      for (const double sign : {1.0, -1.0}) EXPECT_EQ(rounded_to_float8(sign * numbers[i], format), sign * numbers[i]);
      if (i == 0) continue;
      const double below = numbers[i - 1], above = numbers[i], middle = (below + above) / 2;
      EXPECT_EQ(rounded_to_float8(middle, format), i % 2 == 0 ? above : below);  // bits that end in 0 are even
      EXPECT_EQ(rounded_to_float8(std::nextafter(middle, 0), format), below);
      EXPECT_EQ(rounded_to_float8(std::nextafter(middle, above), format), above);
    }
  }
}

TEST(Float8, TheScaleBringsTheLargestNumberToTheUpperHalfOfTheFormat) {
  for (const OperandFormat which : formats) {
    const Float8 format = float8_of(which);
    for (const double amax : {1.0, 0.3, 1e-8, 448.0, 449.0, 57344.0, 1e30, 1.75, std::nextafter(1.75, 2.0)}) {
      const double scaled = std::ldexp(amax, float8_exponent(amax, format));
      EXPECT_LE(scaled, format.largest) << amax;
      EXPECT_GT(2 * scaled, format.largest) << amax;
    }
    EXPECT_EQ(float8_exponent(0, format), 0);
    EXPECT_EQ(float8_exponent(1e-300, format), 63);
  }
}

TEST(Float8, APartOfATensorIsRoundedAsTheWholeIs) {
  const Numbers x = Numbers::random(DType::float64, {64, 16}, 1);
  for (const OperandFormat format : formats) {
    Numbers whole(DType::float64, {64, 16}), parts(DType::float64, {64, 16});
    round_to_float8(whole, x, format);
    for (std::int64_t first = 0; first < 64; first += 16)
      round_to_float8(parts.tensor().rows(first, 16), x.tensor().rows(first, 16), format);
    std::int64_t num_changed = 0;
    for (std::int64_t i = 0; i < x.count(); ++i) {
      EXPECT_NEAR(parts.get(i), whole.get(i), 4 * 0x1p-9 / 448) << "but for numbers that are tiny beside the largest";
      EXPECT_NEAR(whole.get(i), x.get(i),
                  std::abs(x.get(i)) / (format == OperandFormat::float8_e4m3 ? 16 : 8) + 4 * 0x1p-10 / 448);
      num_changed += whole.get(i) != x.get(i) ? 1 : 0;
    }
    EXPECT_GT(num_changed, 1000);
  }
}

TEST(Float8, WhatIsNotFiniteIsSeenEverywhere) {
  for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    Numbers x = Numbers::random(DType::float32, {16}, 1), rounded(DType::float32, {16});
    x.set(5, bad);
    round_to_float8(rounded, x, OperandFormat::float8_e4m3);
    for (std::int64_t i = 0; i < x.count(); ++i) EXPECT_TRUE(std::isnan(rounded.get(i)));
  }
}

struct Product {
  Numbers a, b, c, scratch;
  Product(DType dtype, std::int64_t M, std::int64_t N, std::int64_t K)
      : a(Numbers::random(dtype, {M, K}, 1)),
        b(Numbers::random(dtype, {N, K}, 2, 1e-3)),
        c(dtype, {M, N}),
        scratch(DType::int32, {float8_scratch_size(M * K, N * K)}) {}
  [[nodiscard]] MatmulArgs args() const {
    return rounded_in({.a = a,
                       .b = b,
                       .c = c,
                       .transpose_b = true,
                       .a_format = OperandFormat::float8_e5m2,
                       .b_format = OperandFormat::float8_e4m3},
                      scratch);
  }
};

TEST(Float8, AProductIsThatOfTheRoundedOperands) {
  for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16}) {
    Product product(dtype, 5, 32, 48);
    Numbers a = product.a, b = product.b, expected = product.c;
    round_to_float8(a, product.a, OperandFormat::float8_e5m2);
    round_to_float8(b, product.b, OperandFormat::float8_e4m3);
    ReferenceOps reference;
    reference.matmul({.a = a, .b = b, .c = expected, .transpose_b = true});
    reference.matmul(product.args());
    expect_near(product.c, expected, 0, "the reference");
    CpuOps cpu({});
    product.c = Numbers(dtype, {5, 32});
    cpu.matmul(product.args());
    expect_near(product.c, expected, tolerance_of(dtype), "processors");
    EXPECT_EQ(cpu.matmul_counts().at({5, 32, 48}), 1);
  }
}

/// All values of c, of `rows` rows of tokens: with whole rounded operands, and as float8 does it.
void expect_product_of_rounded(DType dtype, std::int64_t rows, bool sums_rows, bool accumulates) {
  constexpr std::int64_t N = 32, K = 48;
  const Sizes sizes_of_b = sums_rows ? Sizes{rows, N} : Sizes{N, K},
              sizes_of_c = sums_rows ? Sizes{K, N} : Sizes{rows, N};
  Numbers a = Numbers::random(dtype, {rows, K}, 1), b = Numbers::random(dtype, sizes_of_b, 2, 1e-3),
          start = Numbers::random(sums_rows ? accumulate_dtype(dtype) : dtype, sizes_of_c, 3);
  a.set(rows * K - 1, 300);
  Numbers rounded_a = a, rounded_b = b, expected = start, c = start;
  Numbers scratch(DType::int32, {float8_scratch_size(rows * K, b.count())});
  round_to_float8(rounded_a, a, OperandFormat::float8_e5m2);
  round_to_float8(rounded_b, b, OperandFormat::float8_e4m3);
  MatmulArgs args = {.a = rounded_a,
                     .b = rounded_b,
                     .c = expected,
                     .transpose_a = sums_rows,
                     .transpose_b = !sums_rows,
                     .accumulates = accumulates};
  ReferenceOps().matmul(args);
  args.a = a;
  args.b = b;
  args.c = c;
  args.a_format = OperandFormat::float8_e5m2;
  args.b_format = OperandFormat::float8_e4m3;
  args = rounded_in(args, scratch);
  CpuOps({}).matmul(args);
  expect_near(c, expected, 10 * tolerance_of(dtype),
              fmt::format("{} rows, sums {} adds {}", rows, sums_rows, accumulates));
}

// Rows of tokens are rounded 768 at a time, with the scale of all: the largest value is in the last ones.
TEST(Float8, AProductOfManyRowsHasOneScale) {
  for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16})
    for (const std::int64_t rows : {752, 768, 784, 1600})
      for (const bool sums_rows : {false, true})
        for (const bool accumulates : {false, true}) expect_product_of_rounded(dtype, rows, sums_rows, accumulates);
}

TEST(Float8, WhatTensorCoresLackIsRefused) {
  ReferenceOps reference;
  Product product(DType::float32, 5, 32, 48);
  MatmulArgs args = product.args();
  args.b_format = OperandFormat::float8_e5m2;
  EXPECT_THROW(reference.matmul(args), Failure) << "both e5m2";
  args.b_format = OperandFormat::own;
  EXPECT_THROW(reference.matmul(args), Failure) << "one of two";
  args = product.args();
  args.b_rounded.memory = {};
  EXPECT_THROW(reference.matmul(args), Failure) << "no memory";
  args = product.args();
  args.b_rounded.order = Float8Order::transposed;
  EXPECT_THROW(reference.matmul(args), Failure) << "b is read as it is";
  args = product.args();
  args.a_rounded.order = Float8Order::both;
  EXPECT_THROW(reference.matmul(args), Failure) << "5 rows transposed";
  EXPECT_THROW(reference.matmul(Product(DType::float32, 5, 24, 48).args()), Failure) << "24 columns";
  EXPECT_THROW(reference.matmul(Product(DType::float32, 5, 32, 40).args()), Failure) << "40 in a sum";
}

}  // namespace
}  // namespace echelon
