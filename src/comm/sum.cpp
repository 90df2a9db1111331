#include "comm/sum.h"

#include "comm/half.h"

#include <cmath>
#include <type_traits>

namespace echelon {
namespace {

// Calls f.operator()<T, A>(): T as stored, A in which sums are formed.
template <class F>
void with_types(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32: return f.template operator()<float, float>();
    case DType::float64: return f.template operator()<double, double>();
    case DType::bfloat16: return f.template operator()<bfloat16, float>();
    case DType::float16: return f.template operator()<Half, float>();
    case DType::int32: return f.template operator()<std::int32_t, std::int32_t>();
  }
}

template <class A>
A plus(A a, A b) {
  if constexpr (std::is_same_v<A, std::int32_t>)
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));  // wraps where int would be undefined
  else
    return a + b;
}

template <class A>
A greater(A a, A b) {
  if constexpr (std::is_floating_point_v<A>) {
    if (std::isnan(a)) return a;
  }
  return a >= b ? a : b;
}

}  // namespace

void RankOrderSum::begin(const std::byte* x, std::int64_t count) {
  with_types(dtype_, [&]<class T, class A>() {
    const T* __restrict in = reinterpret_cast<const T*>(x);
    A* __restrict out = sum<A>();
    for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<A>(in[i]);
  });
}

void RankOrderSum::add(const std::byte* x, std::int64_t count) {
  with_types(dtype_, [&]<class T, class A>() {
    const T* __restrict in = reinterpret_cast<const T*>(x);
    A* __restrict out = sum<A>();
    switch (op_) {
      case ReduceOp::sum:
        for (std::int64_t i = 0; i < count; ++i) out[i] = plus(out[i], static_cast<A>(in[i]));
        break;
      case ReduceOp::max:
        for (std::int64_t i = 0; i < count; ++i) out[i] = greater(out[i], static_cast<A>(in[i]));
        break;
    }
  });
}

void RankOrderSum::store(std::byte* x, std::int64_t count) const {
  with_types(dtype_, [&]<class T, class A>() {
    const A* __restrict in = sum<A>();
    T* __restrict out = reinterpret_cast<T*>(x);
    for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(in[i]);
  });
}

}  // namespace echelon
