// Rates in rounds: each is measured once in every round, and the rounds show whether others disturbed it.
#pragma once

#include "measure/attention_rate.h"
#include "spec/machine/host_spec.h"

#include <functional>
#include <vector>

namespace echelon {

/// The best of some rounds, since others can only slow a rate down; how far the median round is below it.
struct RateInRounds {
  double best = 0;
  double spread = 0;  // 0.01: 1 %
};
[[nodiscard]] RateInRounds of_rounds(const std::vector<double>& rates);

/// A rate of more spread than this is unsure.
constexpr double unsure_spread = 0.05;

constexpr int num_rate_rounds = 5;

/// Flops per second of a large float32 matmul.
using MatmulRate = std::function<double(int num_threads, double seconds)>;

struct WorkloadRates {
  MatmulRate matmul;
  AttentionRate attention;
};

/// Sets the rates of one core and of all cores, and their spread. Each takes `seconds`.
void measure_rates_in_rounds(HostSpec& machine, double seconds, const WorkloadRates& workloads);

/// Sets the latency and the bandwidth of an all-reduce among threads, and their spread.
void measure_all_reduce(HostSpec& machine, double seconds);

/// Probes the peaks again, up to three times, while a matmul contradicts them (spec/machine/probe_errors.h): others may
/// have used the cores during all rounds.
void probe_again(HostSpec& machine, double seconds);

}  // namespace echelon
