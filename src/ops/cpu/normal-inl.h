// The distribution function Phi and the density of the standard normal, of vectors. Phi(x) = erfc(-x / sqrt 2) / 2, and
// erfc has the rational approximations of Cody 1969 ("Rational Chebyshev approximations for the error function"), of
// t = |x| / sqrt 2 in three ranges. Relative error: a few units of the last place, and of x^2/2 in the exponential.
// Included once per instruction set (Highway).

// clang-format off
#if defined(ECHELON_OPS_CPU_NORMAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECHELON_OPS_CPU_NORMAL_INL_H_
#undef ECHELON_OPS_CPU_NORMAL_INL_H_
#else
#define ECHELON_OPS_CPU_NORMAL_INL_H_
#endif
// clang-format on

#include "ops/cpu/exponential-inl.h"

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

/// A polynomial by Horner's scheme, the highest power first.
template <class A, std::size_t count>
HWY_INLINE Vec<A> polynomial(const double (&coefficients)[count], Vec<A> x) {
  auto y = hn::Set(Tag<A>(), static_cast<A>(coefficients[0]));
  for (std::size_t i = 1; i < count; ++i) y = hn::MulAdd(y, x, hn::Set(Tag<A>(), static_cast<A>(coefficients[i])));
  return y;
}

/// erf(t) / t of t^2 up to 0.46875^2.
template <class A>
HWY_INLINE Vec<A> erf_quotient(Vec<A> square) {
  static constexpr double above[] = {1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2,
                                     3.77485237685302021e2, 3.20937758913846947e3};
  static constexpr double below[] = {1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3,
                                     2.84423683343917062e3};
  return hn::Div(polynomial<A>(above, square), polynomial<A>(below, square));
}

/// exp(t^2) erfc(t) of t from 0.46875 to 4.
template <class A>
HWY_INLINE Vec<A> scaled_erfc(Vec<A> t) {
  static constexpr double above[] = {2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594,
                                     6.61191906371416295e1,  2.98635138197400131e2,  8.81952221241769090e2,
                                     1.71204761263407058e3,  2.05107837782607147e3,  1.23033935479799725e3};
  static constexpr double below[] = {1.0,
                                     1.57449261107098347e1,
                                     1.17693950891312499e2,
                                     5.37181101862009858e2,
                                     1.62138957456669019e3,
                                     3.29079923573345963e3,
                                     4.36261909014324716e3,
                                     3.43936767414372164e3,
                                     1.23033935480374942e3};
  return hn::Div(polynomial<A>(above, t), polynomial<A>(below, t));
}

/// The same of a larger t.
template <class A>
HWY_INLINE Vec<A> scaled_erfc_of_large(Vec<A> t) {
  static constexpr double above[] = {1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1,
                                     1.25781726111229246e-1, 1.60837851487422766e-2, 6.58749161529837803e-4};
  static constexpr double below[] = {1.0,
                                     2.56852019228982242,
                                     1.87295284992346047,
                                     5.27905102951428412e-1,
                                     6.05183413124413191e-2,
                                     2.33520497626869185e-3};
  constexpr double inv_sqrt_pi = 0.56418958354775628695;
  const auto inverse = hn::Div(hn::Set(Tag<A>(), A{1}), t), square = hn::Mul(inverse, inverse);
  const auto rest = hn::Mul(square, hn::Div(polynomial<A>(above, square), polynomial<A>(below, square)));
  return hn::Mul(inverse, hn::Sub(hn::Set(Tag<A>(), static_cast<A>(inv_sqrt_pi)), rest));
}

/// exp(-x^2/2)
template <class A>
HWY_INLINE Vec<A> normal_exponential(Vec<A> x) {
  return exp<A>(hn::Mul(hn::Mul(hn::Set(Tag<A>(), A{-0.5}), x), x));
}

template <class A>
HWY_INLINE Vec<A> normal_density(Vec<A> x) {
  return hn::Mul(hn::Set(Tag<A>(), static_cast<A>(0.39894228040143267794)), normal_exponential<A>(x));
}

template <class A>
HWY_INLINE Vec<A> normal_distribution(Vec<A> x) {
  const Tag<A> d;
  const auto half = hn::Set(d, A{0.5}), one = hn::Set(d, A{1}),
             scale = hn::Set(d, static_cast<A>(0.70710678118654752440));
  const auto signed_t = hn::Mul(x, scale), t = hn::Abs(signed_t);
  const auto tail = hn::Mul(hn::Mul(half, normal_exponential<A>(x)),
                            hn::IfThenElse(hn::Le(t, hn::Set(d, A{4})), scaled_erfc<A>(t), scaled_erfc_of_large<A>(t)));
  const auto near_zero = hn::MulAdd(hn::Mul(half, signed_t), erf_quotient<A>(hn::Mul(t, t)), half);
  const auto far = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
  return hn::IfThenElse(hn::Le(t, hn::Set(d, static_cast<A>(0.46875))), near_zero, far);
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#endif  // per target
