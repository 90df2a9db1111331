#include "predict/device_time.h"

#include "base/error.h"

#include <algorithm>

namespace echelon {
namespace {

double saturation(std::int64_t size, double half) { return static_cast<double>(size) / (static_cast<double>(size) + half); }

double arithmetic_rate(const OpRecord& operation, const DeviceSpec& device) {
  const FormatRates& rates = rates_of(device, operation.dtype);
  switch (operation.kind) {
    case OpKind::matmul: return matmul_rate(rates, operation.m, operation.n, operation.k);
    case OpKind::attention:
    case OpKind::attention_backward: return rates.peak_flops * (rates.attention_efficiency > 0 ? rates.attention_efficiency : rates.matmul.efficiency);
    default: return device.vector_flops;
  }
}

}  // namespace

const FormatRates& rates_of(const DeviceSpec& device, DType dtype) {
  const auto own = device.formats.find(name_of(dtype));
  if (own != device.formats.end()) return own->second;
  const auto wide = device.formats.find("float32");
  require(wide != device.formats.end(), "the device '{}' has rates neither for {} nor for float32", device.name, name_of(dtype));
  return wide->second;
}

double matmul_rate(const FormatRates& rates, std::int64_t m, std::int64_t n, std::int64_t k) {
  const MatmulCurve& curve = rates.matmul;
  return rates.peak_flops * curve.efficiency * saturation(m, curve.half_m) * saturation(n, curve.half_n) * saturation(k, curve.half_k);
}

double operation_seconds(const OpRecord& operation, const DeviceSpec& device) {
  const double rate = arithmetic_rate(operation, device);
  const double arithmetic = rate > 0 ? static_cast<double>(operation.flops) / rate : 0;
  const double memory = static_cast<double>(operation.bytes) / (device.memory_bandwidth * device.memory_efficiency);
  return std::max(arithmetic, memory) + device.operation_seconds;
}

}  // namespace echelon
