#include "comm/numbers.h"

#include <cmath>
#include <cstring>

namespace echelon::conformance {
namespace {

template <class F>
auto with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32: return f(float{});
    case DType::float64: return f(double{});
    case DType::bfloat16: return f(bfloat16{});
    case DType::float16: return f(Binary16{});
    case DType::int32: return f(std::int32_t{});
    case DType::int16: return f(std::int16_t{});
  }
  return f(float{});
}

template <class T>
T rounded(double value) {
  if constexpr (std::is_same_v<T, double>)
    return value;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return static_cast<std::int32_t>(std::lround(value));
  else
    return static_cast<T>(static_cast<float>(value));
}

template <class T>
double widened(T value) {
  if constexpr (std::is_same_v<T, bfloat16>)
    return static_cast<double>(static_cast<float>(value));
  else
    return static_cast<double>(value);
}

}  // namespace

MeshShape line(int n) { return MeshShape({{Axis::dp_replicate, n}}); }

void Buffer::set(std::int64_t i, double value) {
  with_type(dtype_, [&]<class T>(T) {
    const T x = rounded<T>(value);
    std::memcpy(bytes_.data() + i * static_cast<std::int64_t>(sizeof(T)), &x, sizeof(T));
  });
}

double Buffer::get(std::int64_t i) const {
  return with_type(dtype_, [&]<class T>(T) {
    T x;
    std::memcpy(&x, bytes_.data() + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    return widened(x);
  });
}

double number(int rank, std::int64_t i, int salt) {
  std::uint64_t x = static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15ULL +
                    static_cast<std::uint64_t>(rank) * 0xbf58476d1ce4e5b9ULL +
                    static_cast<std::uint64_t>(salt) * 0x94d049bb133111ebULL;
  x ^= x >> 31;
  x *= 0xd6e8feb86659fd93ULL;
  x ^= x >> 32;
  const double unit = static_cast<double>(x >> 11) * 0x1p-53 * 2 - 1;
  return unit * std::ldexp(100.0, static_cast<int>(x % 5));
}

Buffer numbers(DType dtype, std::int64_t num_elements, int rank, int salt) {
  Buffer buffer(dtype, num_elements);
  for (std::int64_t i = 0; i < num_elements; ++i) buffer.set(i, number(rank, i, salt));
  return buffer;
}

Buffer reduced(DType dtype, std::int64_t count, int num_ranks, ReduceOp op, int salt, std::int64_t first) {
  Buffer x(dtype, 1), sums(dtype, count);
  const bool is_single = accumulate_dtype(dtype) == DType::float32 && dtype != DType::int32;
  for (std::int64_t i = 0; i < count; ++i) {
    x.set(0, number(0, first + i, salt));
    double sum = x.get(0);
    for (int rank = 1; rank < num_ranks; ++rank) {
      x.set(0, number(rank, first + i, salt));
      sum = op == ReduceOp::max ? std::max(sum, x.get(0)) : sum + x.get(0);
      // A double sum of two floats, rounded, is their float sum (Figueroa 1995).
      if (is_single) sum = static_cast<float>(sum);
    }
    sums.set(i, sum);
  }
  return sums;
}

void expect_same(const Buffer& got, const Buffer& expected, const std::string& what) {
  if (got == expected) return;
  ASSERT_EQ(got.num_elements(), expected.num_elements()) << what;
  std::int64_t i = 0;
  while (i < got.num_elements() && got.get(i) == expected.get(i)) ++i;
  if (i < got.num_elements())
    FAIL() << what << ": element " << i << " of " << got.num_elements() << " " << name_of(got.dtype()) << " is "
           << got.get(i) << ", expected " << expected.get(i);
}

}  // namespace echelon::conformance
