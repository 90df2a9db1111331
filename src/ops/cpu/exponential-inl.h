// e^x and 2^x of vectors, within 2 units of the last place. Above the range the result is infinity. What would be below
// 2^-125.5 (float64: 2^-1021.5) is 0: denormal values are slow on many CPUs. NaN stays NaN.
//
// x = n ln 2 + f with |f| <= ln(2)/2 (or n + f with |f| <= 1/2). e^f (2^f) is a minimax polynomial 1 + c1 f + ...
// (found by Lawson's iteration). Its relative error is 2e-9 for float32, 3e-18 for float64. Its value at 0 is exactly
// 1. Included once per instruction set (Highway).

// clang-format off
#if defined(ECHELON_OPS_CPU_EXPONENTIAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECHELON_OPS_CPU_EXPONENTIAL_INL_H_
#undef ECHELON_OPS_CPU_EXPONENTIAL_INL_H_
#else
#define ECHELON_OPS_CPU_EXPONENTIAL_INL_H_
#endif
// clang-format on

#include "hwy/highway.h"

#include <array>
#include <numbers>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class A>
using Tag = hn::ScalableTag<A>;
template <class A>
using Vec = hn::Vec<Tag<A>>;

template <class A>
struct ExponentialConstants;

template <>
struct ExponentialConstants<float> {
  static constexpr float exp[] = {
      1.0F, 1.00000003213F, 0.49999994218F, 0.16666431375F, 0.0416679996246F, 0.00837414954284F, 0.00138438054465F};
  static constexpr float exp2[] = {1.0F,
                                   0.693147202828F,
                                   0.240226479179F,
                                   0.0555033250857F,
                                   0.00961843680111F,
                                   0.00133988651828F,
                                   0.000153535304127F};
  // Products of the upper part with n are exact.
  static constexpr float ln2_upper = 0.693359375F, ln2_lower = -2.12194440e-4F;
  static constexpr int num_mantissa_bits = 23, exponent_bias = 127;
};

template <>
struct ExponentialConstants<double> {
  static constexpr double exp[] = {1.0,
                                   1.0000000000000000233,
                                   0.50000000000000125024,
                                   0.16666666666666221229,
                                   0.041666666666517749555,
                                   0.0083333333335485568933,
                                   0.0013888888946376369093,
                                   0.00019841269438273153836,
                                   0.000024801490609616622483,
                                   2.7557625720154806415e-6,
                                   2.7631044226800535951e-7,
                                   2.4991701065457171391e-8};
  static constexpr double exp2[] = {1.0,
                                    0.69314718055994532555,
                                    0.24022650695910131302,
                                    0.055504108664820096535,
                                    0.0096181291075941018657,
                                    0.0013333558146772806926,
                                    0.00015403530457138340651,
                                    0.000015252733494261059934,
                                    1.3215435267979792988e-6,
                                    1.0178199211265752096e-7,
                                    7.0737858579819272323e-9,
                                    4.434818892537114073e-10};
  static constexpr double ln2_upper = 0.693147180369123816490, ln2_lower = 1.90821492927058770002e-10;
  static constexpr int num_mantissa_bits = 52, exponent_bias = 1023;
};

/// Where x is NaN, the result is: x86's minimum and maximum of a number and a NaN are their second operand.
template <class A>
HWY_INLINE Vec<A> clamped(Vec<A> x, A smallest, A largest) {
  const Tag<A> d;
  const auto y = hn::Min(hn::Set(d, largest), hn::Max(hn::Set(d, smallest), x));
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  return y;
#else
  return hn::IfThenElse(hn::IsNaN(x), x, y);
#endif
}

template <class A>
constexpr int half_bias = ExponentialConstants<A>::exponent_bias - 1;

/// x + rounding is a sum whose last bits are n + half_bias, with n the whole number next to x, and so half of 2^n after
/// one shift, if that is a normal number. half_bias is even, so that the sum is rounded as x is.
template <class A>
HWY_INLINE Vec<A> rounding() {
  constexpr int num_mantissa_bits = ExponentialConstants<A>::num_mantissa_bits;
  return hn::Set(Tag<A>(), static_cast<A>((std::int64_t{3} << (num_mantissa_bits - 1)) + half_bias<A>));
}
/// 2^(n - 1) of such a sum; 0 for n = -half_bias, and infinity for half_bias + 3.
template <class A>
HWY_INLINE Vec<A> half_power(Vec<A> sum) {
  const auto bits = hn::BitCast(hn::RebindToSigned<Tag<A>>(), sum);
  return hn::BitCast(Tag<A>(), hn::ShiftLeft<ExponentialConstants<A>::num_mantissa_bits>(bits));
}

template <class A, std::size_t count>
constexpr std::array<A, count> doubled(const A (&coefficients)[count]) {
  std::array<A, count> result{};
  for (std::size_t i = 0; i < count; ++i) result[i] = 2 * coefficients[i];
  return result;
}

/// Where there are 16 registers: constants that the compiler does not know, so that it reads them in a loop that stores
/// something, rather than keeps them in registers and other values on the stack.
template <class A>
HWY_INLINE const A* read_where_needed(const A* constants) {
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
  asm("" : "+r"(constants));
#endif
  return constants;
}

/// f = polynomial(f) 2^n of every vector, by Horner's scheme, with all coefficients doubled; `sums` hold n. The vectors
/// take every step together, so that each coefficient is needed once.
template <class A, std::size_t num_coefficients, std::size_t count>
HWY_INLINE void scaled_polynomials(const std::array<A, num_coefficients>& coefficients, const Vec<A> (&sums)[count],
                                   Vec<A> (&f)[count]) {
  const Tag<A> d;
  const A* c = read_where_needed(coefficients.data());
  Vec<A> y[count];
  for (auto& each : y) each = hn::Set(d, c[num_coefficients - 1]);
  for (std::size_t i = num_coefficients - 1; i-- > 0;)
    for (std::size_t v = 0; v < count; ++v) y[v] = hn::MulAdd(y[v], f[v], hn::Set(d, c[i]));
  for (std::size_t v = 0; v < count; ++v) f[v] = hn::Mul(y[v], half_power<A>(sums[v]));
}

/// 2^x of every vector, in place.
template <class A, std::size_t count>
HWY_INLINE void raise_two(Vec<A> (&x)[count]) {
  Vec<A> sums[count];
  for (std::size_t v = 0; v < count; ++v) {
    x[v] = clamped<A>(x[v], -half_bias<A>, half_bias<A> + 3);
    sums[v] = hn::Add(x[v], rounding<A>());
    x[v] = hn::Sub(x[v], hn::Sub(sums[v], rounding<A>()));
  }
  static constexpr auto coefficients = doubled(ExponentialConstants<A>::exp2);
  scaled_polynomials<A>(coefficients, sums, x);
}

template <class A>
HWY_INLINE Vec<A> exp(Vec<A> x) {
  using Constants = ExponentialConstants<A>;
  constexpr double ln2 = std::numbers::ln2;
  const Tag<A> d;
  x = clamped<A>(x, static_cast<A>(-half_bias<A> * ln2), static_cast<A>((half_bias<A> + 3) * ln2));
  const Vec<A> sums[1] = {hn::Add(hn::Mul(x, hn::Set(d, static_cast<A>(std::numbers::log2e))), rounding<A>())};
  const auto n = hn::Sub(sums[0], rounding<A>());
  Vec<A> f[1] = {
      hn::NegMulAdd(n, hn::Set(d, Constants::ln2_lower), hn::NegMulAdd(n, hn::Set(d, Constants::ln2_upper), x))};
  static constexpr auto coefficients = doubled(Constants::exp);
  scaled_polynomials<A>(coefficients, sums, f);
  return f[0];
}

template <class A>
HWY_INLINE Vec<A> exp2(Vec<A> x) {
  Vec<A> power[1] = {x};
  raise_two<A>(power);
  return power[0];
}

/// e^x of an x that is not large, such as a logarithm of a probability.
template <class A>
HWY_INLINE Vec<A> exp_below_one(Vec<A> x) {
  return exp<A>(x);
}

/// 1 / (1 + e^-x)
template <class A>
HWY_INLINE Vec<A> sigmoid(Vec<A> x) {
  const auto one = hn::Set(Tag<A>(), A{1});
  return hn::Div(one, hn::Add(one, exp<A>(hn::Neg(x))));
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#endif  // per target
