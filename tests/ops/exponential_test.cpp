// e^x and 2^x of every instruction set against the C library's long double.
#include "ops/cpu/targets.h"
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/exponential_test.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "ops/cpu/instruction_set.h"
#include "ops/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

template <class A, bool is_power_of_two>
void exponentials(const A* x, A* y, std::int64_t count) {
  for_lanes<A>(0, count, [=](auto lanes, std::int64_t i) HWY_ATTR {
    if constexpr (is_power_of_two)
      lanes.store(exp2<A>(lanes.load(x + i)), y + i);
    else
      lanes.store(exp<A>(lanes.load(x + i)), y + i);
  });
}
void Exp(const float* x, float* y, std::int64_t count) { exponentials<float, false>(x, y, count); }
void Exp2(const float* x, float* y, std::int64_t count) { exponentials<float, true>(x, y, count); }
void ExpOfDouble(const double* x, double* y, std::int64_t count) { exponentials<double, false>(x, y, count); }
void Exp2OfDouble(const double* x, double* y, std::int64_t count) { exponentials<double, true>(x, y, count); }

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace echelon {
namespace {

HWY_EXPORT(Exp);
HWY_EXPORT(Exp2);
HWY_EXPORT(ExpOfDouble);
HWY_EXPORT(Exp2OfDouble);

class ExponentialTest : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    if ((highway_targets() & GetParam()) != GetParam())
      GTEST_SKIP() << "this processor has no " << hwy::TargetName(GetParam());
    choose(GetParam());
  }
  void TearDown() override { choose(0); }
  static void choose(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};
constexpr std::int64_t best = 0, avx2 = HWY_AVX2, scalar = HWY_EMU128;
INSTANTIATE_TEST_SUITE_P(Targets, ExponentialTest, testing::Values(best, avx2, scalar));

/// The largest error in units of the last place of the exact result, with x evenly from `first` to `last`.
template <class A, class F>
double largest_error(F&& f, long double (*exact)(long double), A first, A last) {
  constexpr std::int64_t count = 300'001;
  std::vector<A> x(count), y(count);
  for (std::int64_t i = 0; i < count; ++i)
    x[static_cast<std::size_t>(i)] = first + (last - first) * static_cast<A>(i) / static_cast<A>(count - 1);
  f(x.data(), y.data(), count);
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const long double expected = exact(static_cast<long double>(x[i]));
    const int exponent = std::max(std::ilogb(expected), std::numeric_limits<A>::min_exponent - 1);
    const long double unit = std::ldexp(1.0L, exponent - std::numeric_limits<A>::digits + 1);
    largest = std::max(largest, static_cast<double>(std::abs(static_cast<long double>(y[i]) - expected) / unit));
  }
  return largest;
}

template <class A, class F>
void expect_limits(F&& f, A beyond) {
  constexpr A infinity = std::numeric_limits<A>::infinity();
  const std::vector<A> x = {0,
                            -beyond,
                            beyond,
                            -infinity,
                            infinity,
                            std::numeric_limits<A>::quiet_NaN(),
                            std::numeric_limits<A>::lowest(),
                            std::numeric_limits<A>::max()};
  std::vector<A> y(x.size());
  f(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
  const std::vector<A> expected = {1, 0, infinity, 0, infinity, 0, 0, infinity};
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]))
      EXPECT_TRUE(std::isnan(y[i]));
    else
      EXPECT_EQ(y[i], expected[i]) << x[i];
  }
}

const auto exp_of_floats = [](const float* x, float* y, std::int64_t count) { HWY_DYNAMIC_DISPATCH(Exp)(x, y, count); };
const auto exp2_of_floats = [](const float* x, float* y, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(Exp2)(x, y, count);
};
const auto exp_of_doubles = [](const double* x, double* y, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(ExpOfDouble)(x, y, count);
};
const auto exp2_of_doubles = [](const double* x, double* y, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(Exp2OfDouble)(x, y, count);
};

TEST_P(ExponentialTest, IsWithinTwoUnitsOfTheLastPlace) {
  const auto exact_exp = [](long double x) { return std::exp(x); };
  const auto exact_exp2 = [](long double x) { return std::exp2(x); };
  EXPECT_LE(largest_error<float>(exp_of_floats, exact_exp, -86.9F, 88.7F), 2.0);
  EXPECT_LE(largest_error<float>(exp_of_floats, exact_exp, -1.0F, 1.0F), 2.0);
  EXPECT_LE(largest_error<float>(exp2_of_floats, exact_exp2, -125.4F, 127.9F), 2.0);
  EXPECT_LE(largest_error<float>(exp2_of_floats, exact_exp2, -1.0F, 1.0F), 2.0);
  EXPECT_LE(largest_error<double>(exp_of_doubles, exact_exp, -708.0, 709.7), 2.0);
  EXPECT_LE(largest_error<double>(exp2_of_doubles, exact_exp2, -1021.4, 1023.9), 2.0);
}

TEST_P(ExponentialTest, GoesOverToZeroAndInfinity) {
  expect_limits<float>(exp_of_floats, 105.0F);
  expect_limits<float>(exp2_of_floats, 152.0F);
  expect_limits<double>(exp_of_doubles, 750.0);
  expect_limits<double>(exp2_of_doubles, 1080.0);
}

// What is no normal number is 0: arithmetic with others is slow on some CPUs.
template <class A, class F>
void expect_zero(F&& f, std::vector<A> x) {
  f(x.data(), x.data(), static_cast<std::int64_t>(x.size()));
  EXPECT_EQ(x, std::vector<A>(x.size()));
}
TEST_P(ExponentialTest, IsZeroBelowNormalNumbers) {
  expect_zero<float>(exp_of_floats, {-87.4F, -88.0F, -103.0F});
  expect_zero<float>(exp2_of_floats, {-126.1F, -126.5F, -149.0F});
  expect_zero<double>(exp_of_doubles, {-708.5, -710.0, -744.0});
  expect_zero<double>(exp2_of_doubles, {-1022.1, -1022.5, -1074.0});
}

}  // namespace
}  // namespace echelon
#endif
