#include "measure/measure_scaling.h"

#include "base/median.h"
#include "base/team_cores.h"
#include "machine/cpus.h"
#include "ops/cpu/peaks.h"

#include <algorithm>
#include <thread>

namespace echelon {
namespace {

/// One thread on each.
double multiply_adds_on(const std::vector<CpuSet>& places, double seconds) {
  return measure_multiply_adds(
      DType::float32, {.num_threads = static_cast<int>(places.size()), .seconds = seconds, .starts = [&](int thread) {
                         bind_this_thread(places[static_cast<std::size_t>(thread)]);
                       }});
}

/// By a team that has these cores, and ends with its thread.
double matmul_on(const std::vector<CpuSet>& cores, double seconds, const MatmulRate& matmul) {
  double rate = 0;
  std::thread([&] {
    CpuSet all;
    for (const CpuSet& core : cores) all.insert(all.end(), core.begin(), core.end());
    std::sort(all.begin(), all.end());
    bind_this_thread(all);
    spread_team_of_this_thread(cores);
    rate = matmul(static_cast<int>(cores.size()), seconds);
  }).join();
  return rate;
}

/// The median, and how far the lowest and the highest turn are apart.
RateInRounds of_turns(const std::vector<double>& ratios) {
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  const double middle = median(ratios);
  return {middle, middle > 0 ? (*high - *low) / middle : 0};
}

template <class Measure>
RateInRounds in_turns(const std::vector<CpuSet>& several, const std::vector<CpuSet>& one, Measure&& measure) {
  std::vector<double> ratios;
  for (int turn = 0; turn < num_rate_rounds; ++turn) {
    const double alone = measure(one);
    ratios.push_back(measure(several) / alone);
  }
  return of_turns(ratios);
}

}  // namespace

std::vector<CoreScaling> measure_scaling(const std::vector<CpuSet>& cores, double seconds, const MatmulRate& matmul) {
  const double turn_seconds = seconds / num_rate_rounds;
  const auto multiply_adds = [&](const std::vector<CpuSet>& places) { return multiply_adds_on(places, turn_seconds); };
  const auto product = [&](const std::vector<CpuSet>& places) { return matmul_on(places, turn_seconds, matmul); };
  const std::vector<CpuSet> one = {cores.front()}, one_thread = {{cores.front().front()}};
  std::vector<CoreScaling> scaling;
  for (std::size_t count = 2; cores.size() > 1; count = std::min(2 * count, cores.size())) {
    const std::vector<CpuSet> several(cores.begin(), cores.begin() + static_cast<std::ptrdiff_t>(count));
    scaling.push_back({.num_cores = static_cast<int>(count),
                       .multiply_adds = in_turns(several, one, multiply_adds),
                       .matmul = in_turns(several, one, product)});
    if (count == cores.size()) break;
  }
  std::vector<CpuSet> threads;
  for (const CpuSet& core : cores)
    for (const int cpu : core) threads.push_back({cpu});
  if (threads.size() > cores.size())
    scaling.push_back({.num_cores = static_cast<int>(cores.size()),
                       .threads_per_core = static_cast<int>(threads.size() / cores.size()),
                       .multiply_adds = in_turns(threads, one_thread, multiply_adds)});
  return scaling;
}

}  // namespace echelon
