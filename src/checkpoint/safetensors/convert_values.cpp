#include "checkpoint/safetensors/convert_values.h"

#include "base/error.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace echelon {
namespace {

/// x as a float32 whose last digit is made odd where digits are lost: no value of 16 bits is between the two, nor the
/// middle of two such values. Rounding it to 16 bits then rounds x itself, only once (Boldo and Melquiond 2008).
float rounded_to_odd(double x) {
  const auto nearest = static_cast<float>(x);
  if (static_cast<double>(nearest) == x || x != x) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::abs(static_cast<double>(nearest)) > std::abs(x)) --bits;  // towards zero; from infinity to the largest
  return std::bit_cast<float>(bits | 1U);
}

template <class From, class To>
void convert_to(const From* in, To* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<From, double> && is_half<To>)
      out[i] = To(rounded_to_odd(in[i]));
    else
      out[i] = to<To>(in[i]);
  }
}

template <class From>
void convert_from(const From* in, DType to, void* out, std::int64_t count) {
  switch (to) {
    case DType::float32: return convert_to(in, static_cast<float*>(out), count);
    case DType::float64: return convert_to(in, static_cast<double*>(out), count);
    case DType::bfloat16: return convert_to(in, static_cast<bfloat16*>(out), count);
    case DType::float16: return convert_to(in, static_cast<float16*>(out), count);
    case DType::int32:
    case DType::int16: break;
  }
  throw Error("weights cannot be converted to integers");
}

// All bits of the exponent are set.
template <class Word>
std::int64_t first_with(Word exponent, const void* values, std::int64_t count) {
  const auto* words = static_cast<const Word*>(values);
  return std::find_if(words, words + count, [&](Word word) { return (word & exponent) == exponent; }) - words;
}

}  // namespace

std::int64_t first_not_finite(DType dtype, const void* values, std::int64_t count) {
  switch (dtype) {
    case DType::float32: return first_with<std::uint32_t>(0x7f800000U, values, count);
    case DType::float64: return first_with<std::uint64_t>(0x7ff0000000000000ULL, values, count);
    case DType::bfloat16: return first_with<std::uint16_t>(0x7f80U, values, count);
    case DType::float16: return first_with<std::uint16_t>(0x7c00U, values, count);
    case DType::int32:
    case DType::int16: break;
  }
  throw Error("integers are not weights");
}

void convert_values(DType from, const void* in, DType to, void* out, std::int64_t count) {
  if (from == to) {
    std::memcpy(out, in, static_cast<std::size_t>(count * size_of(from)));
    return;
  }
  switch (from) {
    case DType::float32: return convert_from(static_cast<const float*>(in), to, out, count);
    case DType::float64: return convert_from(static_cast<const double*>(in), to, out, count);
    case DType::bfloat16: return convert_from(static_cast<const bfloat16*>(in), to, out, count);
    case DType::float16: return convert_from(static_cast<const float16*>(in), to, out, count);
    case DType::int32:
    case DType::int16: break;
  }
  throw Error("weights cannot be converted from integers");
}

}  // namespace echelon
