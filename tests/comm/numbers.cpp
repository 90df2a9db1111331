#include "comm/numbers.h"

#include <cmath>
#include <cstring>

namespace echelon::conformance {
namespace {

// The compiler's own binary16, as a check of the transport's conversion.
using Binary16 = _Float16;

template <class F>
auto with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32: return f(float{});
    case DType::float64: return f(double{});
    case DType::bfloat16: return f(bfloat16{});
    case DType::float16: return f(Binary16{});
    case DType::int32: return f(std::int32_t{});
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

MeshShape line(int n) {
  std::array<int, num_axes> degrees;
  degrees.fill(1);
  degrees[static_cast<std::size_t>(Axis::dp_replicate)] = n;
  return MeshShape(degrees);
}

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
  std::uint64_t x = static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(rank) * 0xbf58476d1ce4e5b9ULL +
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

Buffer reduced(DType dtype, std::int64_t num_elements, int num_ranks, ReduceOp op, int salt) {
  Buffer sums = numbers(dtype, num_elements, 0, salt);
  std::vector<double> sum(static_cast<std::size_t>(num_elements));
  for (std::int64_t i = 0; i < num_elements; ++i) sum[static_cast<std::size_t>(i)] = sums.get(i);
  const bool is_single = dtype == DType::float32 || dtype == DType::bfloat16 || dtype == DType::float16;
  for (int rank = 1; rank < num_ranks; ++rank) {
    const Buffer x = numbers(dtype, num_elements, rank, salt);
    for (std::int64_t i = 0; i < num_elements; ++i) {
      double& s = sum[static_cast<std::size_t>(i)];
      s = op == ReduceOp::max ? std::max(s, x.get(i)) : s + x.get(i);
      if (is_single) s = static_cast<float>(s);  // a double sum of two floats, rounded, is their float sum (Figueroa 1995)
    }
  }
  for (std::int64_t i = 0; i < num_elements; ++i) sums.set(i, sum[static_cast<std::size_t>(i)]);
  return sums;
}

Buffer slice(const Buffer& full, std::int64_t first, std::int64_t count) {
  Buffer part(full.dtype(), count);
  for (std::int64_t i = 0; i < count; ++i) part.set(i, full.get(first + i));
  return part;
}

void expect_same(const Buffer& got, const Buffer& expected, const std::string& what) {
  if (got == expected) return;
  ASSERT_EQ(got.num_elements(), expected.num_elements()) << what;
  std::int64_t i = 0;
  while (i < got.num_elements() && got.get(i) == expected.get(i)) ++i;
  if (i < got.num_elements())
    FAIL() << what << ": element " << i << " of " << got.num_elements() << " " << name_of(got.dtype()) << " is " << got.get(i) << ", expected "
           << expected.get(i);
}

}  // namespace echelon::conformance
