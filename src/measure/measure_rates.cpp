#include "measure/measure_rates.h"

#include "base/clock.h"
#include "base/median.h"
#include "comm/thread/thread_world.h"
#include "machine/cpus.h"
#include "ops/cpu/peaks.h"
#include "spec/groups.h"
#include "spec/machine/probe_errors.h"
#include "tensor/arena.h"

#include <algorithm>
#include <limits>

namespace echelon {
namespace {

struct Probe {
  double ComputeRates::*rate;
  std::function<double(const PeakOptions&)> measure;
};

Probe multiply_adds(double ComputeRates::*rate, DType dtype) {
  return {rate, [dtype](const PeakOptions& options) { return measure_multiply_adds(dtype, options); }};
}

std::vector<Probe> peak_probes() {
  return {multiply_adds(&ComputeRates::float32_flops, DType::float32),
          multiply_adds(&ComputeRates::float64_flops, DType::float64),
          multiply_adds(&ComputeRates::bfloat16_flops, DType::bfloat16)};
}

std::vector<Probe> all_probes(BandwidthMeter& memory, const WorkloadRates& workloads) {
  std::vector<Probe> probes = peak_probes();
  probes.push_back({&ComputeRates::sgemm_flops, [&workloads](const PeakOptions& options) {
                      return workloads.matmul(options.num_threads, options.seconds);
                    }});
  for (const auto& [rate, dtype] : {std::pair{&ComputeRates::attention_float32_flops, DType::float32},
                                    {&ComputeRates::attention_bfloat16_flops, DType::bfloat16}})
    probes.push_back({rate, [&workloads, of = dtype](const PeakOptions& options) {
                        return workloads.attention(of, options.num_threads, options.seconds);
                      }});
  for (const auto& [rate, pattern] : {std::pair{&ComputeRates::copy_bandwidth, MemoryPattern::copy},
                                      {&ComputeRates::triad_bandwidth, MemoryPattern::triad},
                                      {&ComputeRates::read_bandwidth, MemoryPattern::read}})
    probes.push_back(
        {rate, [&memory, pattern](const PeakOptions& options) { return memory.measure(pattern, options); }});
  return probes;
}

struct CoreChoice {
  ComputeRates HostSpec::*rates, HostSpec::*spread;
  int num_threads;
};
std::vector<CoreChoice> choices_of_cores() {
  return {{&HostSpec::core, &HostSpec::core_spread, 1},
          {&HostSpec::device, &HostSpec::device_spread, num_usable_cores()}};
}

/// The fastest all-reduce of a buffer among thread ranks, as rank 0 sees it.
double all_reduce_seconds(int num_ranks, std::int64_t num_elements, double seconds) {
  const int calls_between = num_elements < 1024 ? 200 : 1;
  double best = 0;
  run_thread_ranks(MeshShape({{Axis::dp_shard, num_ranks}}), {}, [&](Mesh& mesh) {
    const Arena arena(aligned(num_elements * std::int64_t{sizeof(float)}));
    const Tensor x = arena.tensor(0, DType::float32, {num_elements});
    std::fill(x.as<float>(), x.as<float>() + num_elements, 1.0F);
    const Arena vote_arena(alignment_bytes);
    const Tensor vote = vote_arena.tensor(0, DType::float64, {1});
    Comm& comm = mesh.comm(world_group);
    double fastest_here = std::numeric_limits<double>::infinity();
    const double first = now_seconds();
    for (bool has_time = true; has_time;) {
      comm.barrier().wait();
      const double start = now_seconds();
      // The maximum does not grow.
      for (int call = 0; call < calls_between; ++call) comm.all_reduce(x, ReduceOp::max).wait();
      fastest_here = std::min(fastest_here, (now_seconds() - start) / calls_between);
      *vote.as<double>() = now_seconds() - first < seconds ? 1.0 : 0.0;
      comm.all_reduce(vote, ReduceOp::max).wait();  // all ranks end together
      has_time = *vote.as<double>() > 0;
    }
    if (mesh.rank() == 0) best = fastest_here;
  });
  return best;
}

}  // namespace

RateInRounds of_rounds(const std::vector<double>& rates) {
  const double best = *std::max_element(rates.begin(), rates.end());
  return {best, best > 0 ? 1 - median(rates) / best : 0};
}

void measure_rates_in_rounds(HostSpec& machine, double seconds, const WorkloadRates& workloads) {
  BandwidthMeter memory;
  const std::vector<Probe> probes = all_probes(memory, workloads);
  const std::vector<CoreChoice> choices = choices_of_cores();
  std::vector<std::vector<double>> rates(probes.size() * choices.size());
  for (int round = 0; round < num_rate_rounds; ++round)
    for (std::size_t i = 0; i < rates.size(); ++i)
      rates[i].push_back(probes[i / choices.size()].measure(
          {.num_threads = choices[i % choices.size()].num_threads, .seconds = seconds / num_rate_rounds}));
  for (std::size_t i = 0; i < rates.size(); ++i) {
    const CoreChoice& cores = choices[i % choices.size()];
    const RateInRounds rate = of_rounds(rates[i]);
    machine.*cores.rates.*probes[i / choices.size()].rate = rate.best;
    machine.*cores.spread.*probes[i / choices.size()].rate = rate.spread;
  }
}

void measure_all_reduce(HostSpec& machine, double seconds) {
  constexpr std::int64_t large = 16 << 20;  // 64 MiB of float32
  const int num_ranks = std::max(2, num_usable_cores());
  std::vector<double> per_second, bandwidths;
  // Where in the cache the ranks' lines are differs from round to round, and decides on the latency.
  constexpr int num_latency_rounds = 4 * num_rate_rounds;
  for (int round = 0; round < num_latency_rounds; ++round)
    per_second.push_back(1 / all_reduce_seconds(num_ranks, 2, seconds / num_latency_rounds));
  for (int round = 0; round < num_rate_rounds; ++round)
    bandwidths.push_back(static_cast<double>(large * std::int64_t{sizeof(float)}) /
                         all_reduce_seconds(num_ranks, large, seconds / num_rate_rounds));
  const RateInRounds small = of_rounds(per_second), bandwidth = of_rounds(bandwidths);
  machine.all_reduce_latency_seconds = 1 / small.best;
  machine.all_reduce_latency_spread = small.spread;
  machine.all_reduce_bandwidth = bandwidth.best;
  machine.all_reduce_bandwidth_spread = bandwidth.spread;
}

void probe_again(HostSpec& machine, double seconds) {
  for (int attempt = 0; attempt < 3 && !probe_errors(machine).empty(); ++attempt)
    for (const CoreChoice& cores : choices_of_cores())
      for (const Probe& probe : peak_probes()) {
        double& rate = machine.*cores.rates.*probe.rate;
        const double again = probe.measure({.num_threads = cores.num_threads, .seconds = seconds});
        if (again <= rate) continue;
        (machine.*cores.spread.*probe.rate) = 1 - rate / again * (1 - machine.*cores.spread.*probe.rate);
        rate = again;
      }
}

}  // namespace echelon
