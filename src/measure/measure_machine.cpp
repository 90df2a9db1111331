#include "measure/measure_machine.h"

#include "base/team_cores.h"
#include "machine/cores.h"
#include "machine/cpus.h"
#include "machine/processor_name.h"
#include "measure/attention_rate.h"
#include "measure/fastest.h"
#include "measure/measure_collectives.h"
#include "measure/measure_rates.h"
#include "measure/operations/measure_distances.h"
#include "measure/operations/measure_operations.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/peaks.h"
#include "report/system_memory.h"
#include "tensor/arena.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <thread>

namespace echelon {
namespace {

ComputeRates measure(const PeakOptions& options, BandwidthMeter& memory) {
  return {.float32_flops = measure_multiply_adds(DType::float32, options),
          .float64_flops = measure_multiply_adds(DType::float64, options),
          .bfloat16_flops = measure_multiply_adds(DType::bfloat16, options),
          .copy_bandwidth = memory.measure(MemoryPattern::copy, options),
          .triad_bandwidth = memory.measure(MemoryPattern::triad, options),
          .read_bandwidth = memory.measure(MemoryPattern::read, options)};
}

/// Runs on its own thread, so that its team ends with it. Otherwise later code would find fewer cores for its own team
/// (base/team.h).
HostSpec on_a_thread(const std::function<HostSpec()>& f) {
  HostSpec machine;
  std::exception_ptr failure;
  std::thread([&] {
    try {
      spread_team_of_this_thread(cores_among(allowed_cpus()));
      machine = f();
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
  return machine;
}

double sgemm_flops(int num_threads, double seconds, const std::optional<ProductChoice>& products) {
  constexpr std::int64_t M = 1024, N = 3072, K = 768;  // the up-projection of a GPT-2 block
  const Arena arena((M * K + N * K + M * N) * std::int64_t{sizeof(float)});
  Stack stack = arena.region(0, arena.num_bytes());
  const Tensor a = stack.take(DType::float32, {M, K}), b = stack.take(DType::float32, {N, K}),
               c = stack.take(DType::float32, {M, N});
  const auto ops = make_cpu_ops({.num_threads = num_threads, .products = products});
  ops->fill(a, 0.5);
  ops->fill(b, 0.25);
  return 2.0 * static_cast<double>(M * N * K) /
         fastest(seconds, [&] { ops->matmul({.a = a, .b = b, .c = c, .transpose_b = true}); });
}

MatmulRate matmul_rate(const MeasureOptions& options) {
  return [products = options.products](int num_threads, double seconds) {
    return sgemm_flops(num_threads, seconds, products);
  };
}

/// Of operations and collectives, by size.
void measure_curves(HostSpec& machine, const MeasureOptions& options) {
  if (options.num_rounds == 0) return;
  const auto told = [&](std::string_view what) {
    return [&options, what](double fraction) {
      if (options.progress) options.progress(what, fraction);
    };
  };
  machine.operations = measure_operations(
      usual_operation_sizes(),
      {.num_rounds = options.num_rounds, .progress = told("operations"), .products = options.products});
  constexpr std::int64_t largest_part = 8;  // of memory, that operands take
  machine.distances = measure_distances(
      {.pool_bytes = std::min(DistanceMeasurement().pool_bytes,
                              machine.memory_bytes / largest_part / std::max<std::int64_t>(1, machine.num_cores)),
       .progress = told("distances"),
       .products = options.products});
  machine.collectives["thread"] =
      measure_thread_collectives({.num_rounds = options.num_rounds, .progress = told("collectives")});
}

HostSpec machine_measured_here(const MeasureOptions& options) {
  HostSpec machine = unmeasured_machine();
  if (options.progress) options.progress("rates", 0);
  measure_rates_in_rounds(machine, options.seconds,
                          {.matmul = matmul_rate(options), .attention = attention_rate(options.products)});
  measure_all_reduce(machine, options.seconds);
  measure_curves(machine, options);
  probe_again(machine, options.seconds);
  return machine;
}

}  // namespace

ComputeRates measure_rates(int cores) {
  BandwidthMeter memory;
  return measure({.num_threads = cores, .seconds = 0.05}, memory);
}

HostSpec unmeasured_machine() {
  return {.processor = processor_name(), .num_cores = num_usable_cores(), .memory_bytes = system_memory_bytes()};
}

HostSpec measure_for(const std::vector<OperationSize>& wanted, const ProductRequest& products) {
  constexpr std::int64_t largest_side = 512, most_elements = 1 << 18;
  HostSpec machine = unmeasured_machine();
  std::vector<OperationSize> sizes = {{OpKind::copy, DType::float32, 1 << 16, 1, 1}};
  std::int64_t pool_bytes = 0;
  for (OperationSize size : wanted) {
    if (size.kind == OpKind::attention || size.kind == OpKind::attention_backward)
      size.m = std::min<std::int64_t>(size.m, 4);
    else if (multiplies_matrices(size.kind))
      size = {size.kind,
              size.dtype,
              std::min(size.m, largest_side),
              std::min(size.n, largest_side),
              std::min(size.k, largest_side),
              size.is_weight_gradient};
    else
      size.m = std::clamp<std::int64_t>(most_elements / std::max<std::int64_t>(size.n, 1), 1, size.m);
    if (std::find(sizes.begin(), sizes.end(), size) == sizes.end()) sizes.push_back(size);
  }
  for (const OperationSize& size : sizes) {
    Stack measure;
    (void)sample_operation(size, measure);
    pool_bytes = std::max(pool_bytes, measure.peak_bytes());
  }
  return on_a_thread([&] {
    machine.operations = measure_operations(sizes, {.num_rounds = 1,
                                                    .sample_seconds = 0,
                                                    .pool_bytes = std::max(pool_bytes, std::int64_t{4} << 20U),
                                                    .products = choose_products(products).choice});
    return machine;
  });
}

std::vector<CoreScaling> measure_core_scaling(const MeasureOptions& options) {
  return measure_scaling(cores_among(allowed_cpus()), options.seconds, matmul_rate(options));
}

HostSpec measure_machine(const MeasureOptions& options) {
  return on_a_thread([&] { return machine_measured_here(options); });
}

}  // namespace echelon
