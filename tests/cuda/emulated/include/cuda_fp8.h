// CUDA's numbers of 8 bits on the host, as far as the kernels use them.
#pragma once

#include "ops/float8.h"

#include "cuda_runtime.h"

using __nv_fp8_storage_t = unsigned char;
using __nv_fp8x2_storage_t = unsigned short;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

/// Rounded to nearest even; beyond the largest number that number.
inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t /*saturates*/,
                                                __nv_fp8_interpretation_t interpretation) {
  const echelon::Float8 format = echelon::float8_of(interpretation == __NV_E4M3 ? echelon::OperandFormat::float8_e4m3
                                                                                : echelon::OperandFormat::float8_e5m2);
  const unsigned sign = std::signbit(x) ? 0x80U : 0;
  if (std::isnan(x)) return 0x7f;
  const double rounded = echelon::rounded_to_float8(std::min(std::abs(static_cast<double>(x)), format.largest), format);
  if (rounded == 0) return static_cast<__nv_fp8_storage_t>(sign);
  const int exponent = std::max(std::ilogb(rounded), format.least_exponent);
  // With the leading one of a normal number.
  const auto mantissa = static_cast<unsigned>(std::ldexp(rounded, format.mantissa_bits - exponent));
  return static_cast<__nv_fp8_storage_t>(
      sign | (mantissa + (static_cast<unsigned>(exponent - format.least_exponent) << format.mantissa_bits)));
}
inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 x, __nv_saturation_t saturates,
                                                     __nv_fp8_interpretation_t interpretation) {
  const unsigned low = __nv_cvt_float_to_fp8(x.x, saturates, interpretation),
                 high = __nv_cvt_float_to_fp8(x.y, saturates, interpretation);
  return static_cast<__nv_fp8x2_storage_t>(low | high << 8);
}
