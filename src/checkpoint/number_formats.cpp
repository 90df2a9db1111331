#include "checkpoint/number_formats.h"

#include "base/error.h"

#include <bit>
#include <cmath>

namespace echelon {
namespace {

struct Half {
  std::uint16_t bits;
};

// double is converted by way of float, as PyTorch does.
template <class To, class From>
To converted(From value) {
  if constexpr (std::is_same_v<From, Half>) {
    return converted<To>(float_of_half(value.bits));
  } else if constexpr (std::is_same_v<From, bfloat16>) {
    return converted<To>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, Half>) {
    return {half_of_float(static_cast<float>(value))};
  } else if constexpr (std::is_same_v<To, bfloat16>) {
    return bfloat16(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

template <class From, class To>
void convert_to(const From* in, To* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = converted<To>(in[i]);
}

template <class From>
void convert_from(const From* in, DType to, void* out, std::int64_t count) {
  switch (to) {
    case DType::float32: return convert_to(in, static_cast<float*>(out), count);
    case DType::float64: return convert_to(in, static_cast<double*>(out), count);
    case DType::bfloat16: return convert_to(in, static_cast<bfloat16*>(out), count);
    case DType::float16: return convert_to(in, static_cast<Half*>(out), count);
    case DType::int32: break;
  }
  throw Error("weights cannot be converted to int32");
}

}  // namespace

float float_of_half(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fU;
  const std::uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;  // subnormal
  return sign != 0 ? -magnitude : magnitude;
}

std::uint16_t half_of_float(float value) {
  const auto sign = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16 & 0x8000U);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7e00U;
  if (magnitude >= 65520.0F) return sign | 0x7c00U;                                                                             // rounds to infinity
  if (magnitude < 0x1p-14F) return sign | static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(magnitude + 0.5F) & 0x7ffU);  // the adder rounds to 2^-24
  const auto word = std::bit_cast<std::uint32_t>(magnitude);
  return sign | static_cast<std::uint16_t>((word - (112U << 23) + 0xfffU + (word >> 13 & 1U)) >> 13);
}

void convert_numbers(DType from, const void* in, DType to, void* out, std::int64_t count) {
  if (from == to) {
    std::memcpy(out, in, static_cast<std::size_t>(count * size_of(from)));
    return;
  }
  switch (from) {
    case DType::float32: return convert_from(static_cast<const float*>(in), to, out, count);
    case DType::float64: return convert_from(static_cast<const double*>(in), to, out, count);
    case DType::bfloat16: return convert_from(static_cast<const bfloat16*>(in), to, out, count);
    case DType::float16: return convert_from(static_cast<const Half*>(in), to, out, count);
    case DType::int32: break;
  }
  throw Error("weights cannot be converted from int32");
}

}  // namespace echelon
