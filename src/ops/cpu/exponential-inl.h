// e^x and 2^x of vectors, within 2 units of the last place. Above the range the result is infinity, below it denormal
// values (of e^x only) and 0; NaN stays NaN.
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
#include <iterator>

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
  static constexpr float smallest = -104.0F, largest = 89.0F;  // e^x is 0 and infinity there
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
  static constexpr double smallest = -746.0, largest = 710.0;
  static constexpr int num_mantissa_bits = 52, exponent_bias = 1023;
};

/// Horner's scheme, from the last coefficient on.
template <class A, std::size_t count>
HWY_INLINE Vec<A> polynomial(const A (&coefficients)[count], Vec<A> x) {
  auto sum = hn::Set(Tag<A>(), coefficients[count - 1]);
  for (std::size_t i = count - 1; i-- > 0;) sum = hn::MulAdd(sum, x, hn::Set(Tag<A>(), coefficients[i]));
  return sum;
}

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

/// x 2^n for whole numbers n, rounded once.
template <class A>
HWY_INLINE Vec<A> scaled_by_power(Vec<A> x, Vec<A> n) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(A) == 4)
    return Vec<A>{_mm512_scalef_ps(x.raw, n.raw)};
  else
    return Vec<A>{_mm512_scalef_pd(x.raw, n.raw)};
#else
  using Constants = ExponentialConstants<A>;
  using Int = hwy::MakeSigned<A>;
  const Tag<A> d;
  const hn::RebindToSigned<Tag<A>> di;
  // The last bits of rounds + n are n.
  const auto rounds = hn::Set(d, static_cast<A>(std::int64_t{3} << (Constants::num_mantissa_bits - 1)));
  const auto power = hn::Sub(hn::BitCast(di, hn::Add(rounds, n)), hn::BitCast(di, rounds));
  const auto power_of_two = [=](auto e) HWY_ATTR {
    return hn::BitCast(
        d, hn::ShiftLeft<Constants::num_mantissa_bits>(hn::Add(e, hn::Set(di, Int{Constants::exponent_bias}))));
  };
  const auto half = hn::ShiftRight<1>(power);  // 2^n itself need not be a normal number
  return hn::Mul(hn::Mul(x, power_of_two(half)), power_of_two(hn::Sub(power, half)));
#endif
}

template <class A>
HWY_INLINE Vec<A> exp(Vec<A> x) {
  using Constants = ExponentialConstants<A>;
  const Tag<A> d;
  x = clamped<A>(x, Constants::smallest, Constants::largest);
  const auto n = hn::Round(hn::Mul(x, hn::Set(d, static_cast<A>(1.44269504088896340736))));
  const auto f =
      hn::NegMulAdd(n, hn::Set(d, Constants::ln2_lower), hn::NegMulAdd(n, hn::Set(d, Constants::ln2_upper), x));
  return scaled_by_power<A>(polynomial<A>(Constants::exp, f), n);
}

template <class A>
constexpr auto doubled_coefficients = [] {
  std::array<A, std::size(ExponentialConstants<A>::exp2)> doubled{};
  for (std::size_t i = 0; i < doubled.size(); ++i) doubled[i] = 2 * ExponentialConstants<A>::exp2[i];
  return doubled;
}();

/// Where there are 16 registers: values that the compiler does not know, so that it reads them in a loop that stores
/// something rather than keeps them in registers, and with them other values on the stack.
template <class A>
HWY_INLINE const A* read_where_needed(const A* constants) {
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
  asm("" : "+r"(constants));
#endif
  return constants;
}

/// 2^x, in place. The vectors take every step together, so that each constant is needed once.
template <class A, std::size_t count>
HWY_INLINE void raise_two(Vec<A> (&x)[count]) {
  using Constants = ExponentialConstants<A>;
  constexpr int num_mantissa_bits = Constants::num_mantissa_bits;
  const Tag<A> d;
  // The last bits of rounds + n are n + half_bias, and so half of 2^n after one shift, if that is a normal number. The
  // polynomial is doubled instead. half_bias is even, so that rounds + x is rounded as x is.
  constexpr int half_bias = Constants::exponent_bias - 1;
  const auto rounds = hn::Set(d, static_cast<A>((std::int64_t{3} << (num_mantissa_bits - 1)) + half_bias));
  Vec<A> rounded[count], sum[count];
  for (std::size_t v = 0; v < count; ++v) {
    x[v] = clamped<A>(x[v], -half_bias, half_bias + 3);
    rounded[v] = hn::Add(x[v], rounds);
    x[v] = hn::Sub(x[v], hn::Sub(rounded[v], rounds));
  }
  constexpr std::size_t degree = std::size(Constants::exp2) - 1;
  const A* doubled = read_where_needed(doubled_coefficients<A>.data());
  for (auto& each : sum) each = hn::Set(d, doubled[degree]);
  for (std::size_t i = degree; i-- > 0;)
    for (std::size_t v = 0; v < count; ++v) sum[v] = hn::MulAdd(sum[v], x[v], hn::Set(d, doubled[i]));
  for (std::size_t v = 0; v < count; ++v) {
    const auto exponent = hn::BitCast(hn::RebindToSigned<Tag<A>>(), rounded[v]);
    x[v] = hn::Mul(sum[v], hn::BitCast(d, hn::ShiftLeft<num_mantissa_bits>(exponent)));
  }
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
