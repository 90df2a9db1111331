#include "measure/host_findings.h"

#include "base/text/counted.h"
#include "base/units.h"
#include "machine/busy_time.h"
#include "measure/kept_machine.h"
#include "ops/cpu/peaks.h"
#include "spec/machine/probe_errors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

namespace echelon {
namespace {

constexpr RateName rate_table[] = {
    {"multiply-adds float32", "float32_flops", &ComputeRates::float32_flops},
    {"multiply-adds float64", "float64_flops", &ComputeRates::float64_flops},
    {"dot products bfloat16", "bfloat16_flops", &ComputeRates::bfloat16_flops},
    {"matmul float32", "sgemm_flops", &ComputeRates::sgemm_flops},
    {"attention float32", "attention_float32_flops", &ComputeRates::attention_float32_flops},
    {"attention bfloat16", "attention_bfloat16_flops", &ComputeRates::attention_bfloat16_flops},
    {"memory copy", "copy_bandwidth", &ComputeRates::copy_bandwidth},
    {"memory triad", "triad_bandwidth", &ComputeRates::triad_bandwidth},
    {"memory read", "read_bandwidth", &ComputeRates::read_bandwidth},
};

std::string in_billions(double rate) { return rate > 0 ? fmt::format("{:.1f}", rate / 1e9) : "N/A"; }

std::string busy_line(const HostFindings& findings) {
  std::string line = fmt::format("other processes used {:.0f} % of the cores' time", 100 * findings.share_of_others);
  if (findings.is_busy()) line += ": the machine is busy, and its rates may be too low";
  if (findings.unsure.empty())
    return line + fmt::format("; half of the {} rounds of every rate agree within {:.0f} %\n", num_rate_rounds,
                              100 * unsure_spread);
  return line + fmt::format("; unsure, since rounds differ by more than {:.0f} %: {}\n", 100 * unsure_spread,
                            fmt::join(findings.unsure, ", "));
}

std::string sharing_line(const HostFindings& findings) {
  if (!findings.shares_cores()) return {};
  return fmt::format(
      "a loop that does nothing takes {:.1f} cycles an iteration instead of 1: other work seems to run on the same "
      "cores, as their other hyperthreads, and matmuls stay below the peak meanwhile\n",
      findings.cycles_of_short_loop);
}

std::string unsure_note(const RateInRounds& rate) {
  return rate.spread > unsure_spread ? fmt::format(", unsure: turns differ by {:.0f} %", 100 * rate.spread) : "";
}

std::string scaling_line(const CoreScaling& s) {
  if (s.threads_per_core > 1)
    return fmt::format("multiply-adds float32 on {} threads of each of {} cores: {:.2f} x one thread{}\n",
                       s.threads_per_core, s.num_cores, s.multiply_adds.best, unsure_note(s.multiply_adds));
  return fmt::format("matmul float32 on {} cores: {:.2f} x one core{} (multiply-adds: {:.2f} x{})\n", s.num_cores,
                     s.matmul.best, unsure_note(s.matmul), s.multiply_adds.best, unsure_note(s.multiply_adds));
}

std::vector<std::string> texts_of(const std::vector<CpuSet>& groups) {
  std::vector<std::string> texts;
  for (const CpuSet& group : groups) texts.push_back(to_string(group));
  return texts;
}

nlohmann::ordered_json json_of(const CpuTopology& topology) {
  nlohmann::ordered_json json = {{"cores", texts_of(topology.cores)},
                                 {"caches", nlohmann::ordered_json::array()},
                                 {"memory_nodes", texts_of(topology.memory_nodes)}};
  for (const CacheLevel& cache : topology.caches)
    json["caches"].push_back({{"level", cache.level}, {"bytes", cache.num_bytes}, {"shared", texts_of(cache.groups)}});
  return json;
}

nlohmann::ordered_json json_of(const CoreScaling& s) {
  return {{"num_cores", s.num_cores},
          {"threads_per_core", s.threads_per_core},
          {"multiply_adds", s.multiply_adds.best},
          {"multiply_adds_spread", s.multiply_adds.spread},
          {"matmul", s.matmul.best},
          {"matmul_spread", s.matmul.spread}};
}

nlohmann::ordered_json json_of(const ComputeRates& rates) {
  nlohmann::ordered_json json;
  for (const RateName& name : rate_names()) json[std::string(name.key)] = rates.*name.rate;
  return json;
}

}  // namespace

std::span<const RateName> rate_names() { return rate_table; }

MeasuredHost measure_host(const MeasureOptions& options) {
  const OthersMeter others;
  const HostSpec machine = measure_machine(options);
  std::vector<CoreScaling> scaling = measure_core_scaling(options);
  MeasuredHost measured = {machine, findings_of(machine, others.share(), std::move(scaling))};
  measured.findings.cycles_of_short_loop = measure_cycles_of_short_loop(options.seconds);
  return measured;
}

HostFindings findings_of(const HostSpec& machine, double share_of_others, std::vector<CoreScaling> scaling) {
  HostFindings findings = {.share_of_others = share_of_others,
                           .topology = read_topology(allowed_cpus()),
                           .scaling = std::move(scaling),
                           .unsure = {},
                           .errors = probe_errors(machine)};
  const auto add = [&](double spread, const std::string& name) {
    if (spread > unsure_spread) findings.unsure.push_back(name);
  };
  for (const RateName& rate : rate_table) {
    add(machine.core_spread.*rate.rate, fmt::format("core {}", rate.key));
    add(machine.device_spread.*rate.rate, fmt::format("device {}", rate.key));
  }
  add(machine.all_reduce_latency_spread, "threads all_reduce_latency");
  add(machine.all_reduce_bandwidth_spread, "threads all_reduce_bandwidth");
  return findings;
}

std::string rates_text(const HostSpec& machine) {
  std::string text = fmt::format("{}, {}, {:.1f} GiB\n{:<24}{:>12}{:>9}{:>12}{:>9}\n", machine.processor,
                                 counted(machine.num_cores, "core"), static_cast<double>(machine.memory_bytes) / gib,
                                 "", "one core", "spread", "all cores", "spread");
  for (const RateName& rate : rate_table)
    text += fmt::format("{:<24}{:>12}{:>7.1f} %{:>12}{:>7.1f} %  {}\n", rate.name, in_billions(machine.core.*rate.rate),
                        100 * machine.core_spread.*rate.rate, in_billions(machine.device.*rate.rate),
                        100 * machine.device_spread.*rate.rate, rate.key.ends_with("bandwidth") ? "GB/s" : "GFLOP/s");
  return text + fmt::format("all-reduce among threads: {:.2f} us for 8 bytes, {:.1f} GB/s of a buffer of 64 MiB\n",
                            1e6 * machine.all_reduce_latency_seconds, machine.all_reduce_bandwidth / 1e9);
}

nlohmann::ordered_json rates_json(const HostSpec& machine) {
  return {
      {"machine",
       {{"processor", machine.processor}, {"num_cores", machine.num_cores}, {"memory_bytes", machine.memory_bytes}}},
      {"device", json_of(machine.device)},
      {"core", json_of(machine.core)},
      {"device_spread", json_of(machine.device_spread)},
      {"core_spread", json_of(machine.core_spread)},
      {"threads",
       {{"all_reduce_latency_seconds", machine.all_reduce_latency_seconds},
        {"all_reduce_bandwidth", machine.all_reduce_bandwidth},
        {"all_reduce_latency_spread", machine.all_reduce_latency_spread},
        {"all_reduce_bandwidth_spread", machine.all_reduce_bandwidth_spread}}}};
}

bool HostFindings::is_busy() const { return share_of_others >= busy_share; }

bool HostFindings::shares_cores() const {
  constexpr double most_alone = 1.5;
  return cycles_of_short_loop > most_alone;
}

std::string to_text(const HostFindings& findings) {
  std::string text = to_string(findings.topology) + "\n";
  for (const CoreScaling& scaling : findings.scaling) text += scaling_line(scaling);
  return text + busy_line(findings) + sharing_line(findings);
}

nlohmann::ordered_json to_json(const HostFindings& findings) {
  auto scaling = nlohmann::ordered_json::array();
  for (const CoreScaling& s : findings.scaling) scaling.push_back(json_of(s));
  return {{"share_of_others", findings.share_of_others},
          {"is_busy", findings.is_busy()},
          {"cycles_of_short_loop", findings.cycles_of_short_loop},
          {"shares_cores", findings.shares_cores()},
          {"unsure", findings.unsure},
          {"topology", json_of(findings.topology)},
          {"scaling", scaling},
          {"probe_errors", findings.errors}};
}

}  // namespace echelon
