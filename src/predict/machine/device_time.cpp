#include "predict/machine/device_time.h"

#include "base/error.h"
#include "predict/machine/matmul_rate.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

namespace echelon {
namespace {

/// Fused attention on a GPU (Dao 2023, arXiv:2307.08691) goes over blocks of 128 queries and keys; those on the
/// diagonal are computed whole, though the mask leaves half of them, and narrow heads have fewer multiply-adds per
/// exponential. The start and end of a block of queries take as long as 300 keys of a head of 64 columns:
/// as many as a query of 600 causal tokens sees on average. Measured on A100, both passes, causal and not:
/// github.com/triton-lang/triton, pull request 1917.
constexpr double attention_block = 128, half_head = 32, columns_of_block_ends = 2.0 * 300 * 64;

double attention_flops_at_best(const FormatRates& rates) {
  return rates.peak_flops * (rates.attention_efficiency > 0 ? rates.attention_efficiency : rates.matmul.efficiency);
}

double attention_rate(const OpRecord& operation, const DeviceSpec& device, const FormatRates& rates) {
  const double rate = attention_flops_at_best(rates);
  if (device.num_multiprocessors == 0) return rate;
  const double queries = std::sqrt(2 * static_cast<double>(operation.n));  // n: pairs below the diagonal
  const auto head = static_cast<double>(operation.k);
  return rate * queries / (queries + attention_block + columns_of_block_ends / head) * head / (head + half_head);
}

/// Of training.dtype, the closest first: of the same width, then wider.
std::string_view closest_format(const DeviceSpec& device, DType dtype) {
  constexpr std::string_view after_half[] = {"bfloat16", "float16", "float32", "float64"},
                             after_whole[] = {"float32", "float64", "bfloat16", "float16"};
  for (const std::string_view format : is_half_dtype(dtype) ? after_half : after_whole)
    if (device.formats.contains(format)) return format;
  return "";
}

std::string quoted_name(const DeviceSpec& device) {
  return device.name.empty() ? "" : fmt::format(" '{}'", device.name);
}

const FormatRates& float8_rates(const DeviceSpec& device) {
  const auto found = device.formats.find("float8");
  require(found != device.formats.end(),
          "training.linear_dtype = 'float8': the device{} has no rates for it (use an empty linear_dtype)",
          quoted_name(device));
  return found->second;
}

void multiply_in_tensorfloat32(DeviceSpec& device) {
  const auto narrow = device.formats.find("tensorfloat32"), wide = device.formats.find("float32");
  if (device.lacks("tensorfloat32") || wide == device.formats.end()) return;
  require(narrow != device.formats.end(),
          "training.float32_matmul_precision = 'high': the device{} has no rates for tensorfloat32 (use 'highest', or "
          "name it in unsupported_formats if its matmuls stay in float32)",
          quoted_name(device));
  const double attention_flops = attention_flops_at_best(wide->second);
  wide->second = narrow->second;
  wide->second.attention_efficiency = attention_flops / wide->second.peak_flops;
}

double arithmetic_rate(const OpRecord& operation, const DeviceSpec& device) {
  switch (operation.kind) {
    case OpKind::matmul:
    case OpKind::grouped_matmul:
    case OpKind::grouped_matmul_backward_weight:
      return matmul_rate(device, operation.is_float8 ? float8_rates(device) : rates_of(device, operation.dtype),
                         operation.m, operation.n, operation.k);
    case OpKind::attention:
    case OpKind::attention_backward: return attention_rate(operation, device, rates_of(device, operation.dtype));
    default: return device.vector_flops;
  }
}

}  // namespace

const FormatRates& rates_of(const DeviceSpec& device, DType dtype) {
  const auto own = device.formats.find(name_of(dtype));
  if (own != device.formats.end()) return own->second;
  const std::string_view closest = closest_format(device, dtype);
  throw Error(fmt::format("training.dtype = '{}': the device{} has no rates for it ({})", name_of(dtype),
                          quoted_name(device),
                          closest.empty() ? fmt::format("add formats.{} to its machine file", name_of(dtype))
                                          : fmt::format("use {}", closest)));
}

MachineSpec with_tensorfloat32(MachineSpec machine) {
  for (NodeSpec& node : machine.nodes) multiply_in_tensorfloat32(node.device);
  return machine;
}

double operation_seconds(const OpRecord& operation, const DeviceSpec& device) {
  // Copies from and to the host, some kilobytes a step, are queued on copy engines. Who downloads a snapshot waits.
  constexpr std::int64_t most_free_bytes = 1 << 20;
  if (operation.kind == OpKind::download && operation.bytes > most_free_bytes && device.host_bandwidth > 0)
    return static_cast<double>(operation.bytes) / 2 / device.host_bandwidth;  // it is read here and written there
  if (operation.kind == OpKind::upload || operation.kind == OpKind::download) return 0;
  const double rate = arithmetic_rate(operation, device);
  const double arithmetic = rate > 0 ? static_cast<double>(operation.flops) / rate : 0;
  const double bandwidth = device.memory_bandwidth * device.memory_efficiency,
               memory = static_cast<double>(operation.bytes - operation.rounding_bytes) / bandwidth,
               rounding = static_cast<double>(operation.rounding_bytes) / bandwidth;
  return rounding + std::max(arithmetic, memory) + operation.num_kernels * device.operation_seconds;
}

}  // namespace echelon
