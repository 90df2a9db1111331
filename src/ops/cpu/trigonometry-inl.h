// Sines and cosines of vectors of float64, within 2 units of the last place of 1, for angles from 0 to 2^32.
//
// angle = n pi/2 + f with |f| <= pi/4. pi/2 is the sum of three values. n times the first two is exact, and so
// are the differences to the angle unless f is far from 0. The polynomials for sin f and cos f are those of
// fdlibm (Sun Microsystems 1993, k_sin.c and k_cos.c). Included once per instruction set (Highway).

// clang-format off
#if defined(ECHELON_OPS_CPU_TRIGONOMETRY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECHELON_OPS_CPU_TRIGONOMETRY_INL_H_
#undef ECHELON_OPS_CPU_TRIGONOMETRY_INL_H_
#else
#define ECHELON_OPS_CPU_TRIGONOMETRY_INL_H_
#endif
// clang-format on

#include "hwy/highway.h"

#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Angles = hn::ScalableTag<double>;

struct SinCos {
  hn::Vec<Angles> sin, cos;
};

/// coefficients[0] + z coefficients[1] + z^2 coefficients[2] + ...
template <std::size_t count>
HWY_INLINE hn::Vec<Angles> polynomial_of(hn::Vec<Angles> z, const double (&coefficients)[count]) {
  const Angles d;
  auto sum = hn::Set(d, coefficients[count - 1]);
  for (std::size_t i = count - 1; i-- > 0;) sum = hn::MulAdd(sum, z, hn::Set(d, coefficients[i]));
  return sum;
}

HWY_INLINE SinCos sin_and_cos(hn::Vec<Angles> angle) {
  constexpr double two_over_pi = 0x1.45f306dc9c883p-1;
  constexpr double half_pi_1 = 0x1.921fbp+0, half_pi_2 = 0x1.5110bp-22, half_pi_3 = 0x1.18469898cc517p-44;
  constexpr double of_sin[] = {-1.66666666666666324348e-01, 8.33333333332248946124e-03,  -1.98412698298579493134e-04,
                               2.75573137070700676789e-06,  -2.50507602534068634195e-08, 1.58969099521155010221e-10};
  constexpr double of_cos[] = {4.16666666666666019037e-02,  -1.38888888888741095749e-03, 2.48015872894767294178e-05,
                               -2.75573143513906633035e-07, 2.08757232129817482790e-09,  -1.13596475577881948265e-11};
  const Angles d;
  const hn::RebindToUnsigned<Angles> bits;
  const auto one = hn::Set(d, 1.0), rounder = hn::Set(d, 0x1.8p52);  // whose sum with a small number is rounded to 1
  const auto shifted = hn::Add(hn::Mul(angle, hn::Set(d, two_over_pi)), rounder), n = hn::Sub(shifted, rounder);
  auto f = hn::NegMulAdd(n, hn::Set(d, half_pi_1), angle);
  f = hn::NegMulAdd(n, hn::Set(d, half_pi_2), f);
  f = hn::NegMulAdd(n, hn::Set(d, half_pi_3), f);
  const auto z = hn::Mul(f, f), half_z = hn::Mul(hn::Set(d, 0.5), z), rounded = hn::Sub(one, half_z);
  const auto sin_f = hn::MulAdd(hn::Mul(f, z), polynomial_of(z, of_sin), f);
  const auto lost = hn::Sub(hn::Sub(one, rounded), half_z);
  const auto cos_f = hn::Add(rounded, hn::MulAdd(hn::Mul(z, z), polynomial_of(z, of_cos), lost));
  // n mod 4: odd, sine and cosine are exchanged; its upper bit, and that of n + 1, are their signs.
  const auto quadrant = hn::BitCast(bits, shifted), first = hn::Set(bits, std::uint64_t{1}),
             second = hn::Set(bits, std::uint64_t{2});
  const auto is_odd = hn::RebindMask(d, hn::Eq(hn::And(quadrant, first), first));
  const auto sign_of = [&](auto n_bits) HWY_ATTR { return hn::BitCast(d, hn::ShiftLeft<62>(hn::And(n_bits, second))); };
  return {hn::Xor(hn::IfThenElse(is_odd, cos_f, sin_f), sign_of(quadrant)),
          hn::Xor(hn::IfThenElse(is_odd, sin_f, cos_f), sign_of(hn::Add(quadrant, first)))};
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#endif  // per target
