// echelon bench: measures this machine or its GPUs. In an MPI job it measures the collectives of the processes.
#include "base/text/tell.h"
#include "cli/arguments.h"
#include "cli/bench_gpus.h"
#include "cli/command.h"
#include "measure/host_findings.h"
#include "measure/host_turn.h"
#include "measure/kept_machine.h"
#include "measure/measure_collectives.h"
#include "measure/measure_disk.h"
#include "measure/measure_products.h"
#include "report/output_file.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

struct BenchArguments {
  std::string output, device = "cpu", disk;
  std::int64_t disk_mb = 512;
  std::int64_t largest_size = 16384;
  double seconds = 0.3;
  int rounds = 5;
  bool json = false;
};

void print(const HostSpec& machine, const HostFindings& findings, const std::optional<MeasuredProducts>& products) {
  fmt::print("{}{}", rates_text(machine), to_text(findings));
  std::size_t num_points = 0;
  for (const auto& [kind, curves] : machine.operations)
    for (const auto& [dtype, curve] : curves) num_points += curve.size();
  if (num_points > 0)
    fmt::print("measured sizes of {} operations: {}, in the file that --output names\n", machine.operations.size(),
               num_points);
  if (products) fmt::print("{}\n", to_text(*products));
}

void print_json(const HostSpec& machine, const HostFindings& findings,
                const std::optional<MeasuredProducts>& products) {
  nlohmann::ordered_json json = rates_json(machine);
  json["measurement"] = to_json(findings);
  if (machine.disk.is_known()) json["disk"] = to_json(machine.disk);
  if (products) json["products"] = to_json(*products);
  fmt::print("{}\n", json.dump());
}

std::string disk_line(const DiskSpec& disk, const std::string& folder, std::int64_t num_mib) {
  const std::string kind = file_system_of(folder);
  return fmt::format(
      "disk of {}{}: {} MiB are durable at {:.2f} GB/s, for which a core works {:.3f} s, and read from it at {:.2f} "
      "GB/s; a small file is durable in {:.2f} ms\n",
      folder, kind.empty() ? "" : fmt::format(" ({})", kind), num_mib, disk.write_bandwidth / 1e9,
      static_cast<double>(num_mib << 20) / disk.write_core_bandwidth, disk.read_bandwidth / 1e9,
      1e3 * disk.sync_seconds);
}

/// On a terminal: one line on stderr that is overwritten.
std::function<void(std::string_view, double)> progress(std::string_view last) {
  if (isatty(fileno(stderr)) == 0) return {};
  return [last](std::string_view what, double fraction) {
    const bool is_over = what == last && fraction > 0.999;
    tell("\r{:<60}\r", is_over ? "" : fmt::format("measuring {}: {:.0f} %", what, 100 * fraction));
  };
}

RankPlacement place_this_process() {
  const auto launched = launch_environment();
  return place_ranks(CommBackend::automatic, launched ? launched->size : 1, launched);
}

/// New measurements replace old ones of the same size.
void merge(CollectivesByKind& all, const CollectivesByKind& added) {
  for (const auto& [kind, points] : added)
    for (const CollectivePoint& point : points) {
      std::erase_if(all[kind], [&](const CollectivePoint& old) {
        return old.num_ranks == point.num_ranks && old.bytes == point.bytes;
      });
      all[kind].push_back(point);
    }
}

/// In an MPI job: adds the times of its collectives to the machine file of this host.
ExitStatus add_processes(const BenchArguments& arguments, const RankPlacement& placement) {
  require(!arguments.output.empty(),
          "--output is missing: the machine file of this host, to which {} processes add what their collectives take",
          placement.num_ranks);
  require(arguments.disk.empty(), "--disk={} is measured by one process; omit it, or run echelon bench without mpirun",
          arguments.disk);
  require(placement.num_ranks == placement.num_ranks_on_host,
          "a machine file is of one host, but {} of {} processes are on this one (use {} processes)",
          placement.num_ranks_on_host, placement.num_ranks, placement.num_ranks_on_host);
  HostSpec machine = read_host(arguments.output);
  const OutputFile output("--output", arguments.output, "machine.toml");
  const auto measured = measure_process_collectives(placement, {.num_rounds = std::max(1, arguments.rounds)});
  if (!placement.is_first_process()) return ExitStatus::success;
  merge(machine.collectives["mpi"], measured);
  output.write(to_toml(machine));
  for (const auto& [kind, points] : measured)
    for (const CollectivePoint& point : points)
      fmt::print("{:<16} {:>4} processes {:>10} bytes {:>12.2f} us\n", kind, point.num_ranks, point.bytes,
                 1e6 * point.seconds);
  return ExitStatus::success;
}

/// Of the folder that --disk names.
DiskSpec disk_of(const BenchArguments& arguments) {
  if (arguments.disk.empty()) return {};
  return measure_disk(arguments.disk,
                      {.num_bytes = arguments.disk_mb << 20, .num_rounds = 3, .progress = progress("disk")});
}

/// Starts processes and loads OpenBLAS last, so it comes before all other measurements.
std::optional<MeasuredProducts> products_of(const BenchArguments& arguments) {
  if (arguments.rounds == 0) return std::nullopt;
  return measure_products({.progress = [told = progress("matmuls")](double fraction) {
    if (told) told("matmuls", fraction);
  }});
}

/// This machine's CPUs.
ExitStatus bench_host(const BenchArguments& arguments, const std::optional<OutputFile>& output) {
  const HostTurn turn([] { tell("another process measures this machine; waiting for its end\n"); });
  const DiskSpec disk = disk_of(arguments);
  const auto products = products_of(arguments);
  const ProductNames kept = products ? products->of_machine() : ProductNames();
  auto [machine, findings] = measure_host({.seconds = arguments.seconds,
                                           .num_rounds = arguments.rounds,
                                           .progress = progress("collectives"),
                                           .products = choose_products({.of_machine = kept}).choice});
  machine.disk = disk;
  machine.products = kept;
  arguments.json ? print_json(machine, findings, products) : print(machine, findings, products);
  if (disk.is_known() && !arguments.json) fmt::print("{}", disk_line(disk, arguments.disk, arguments.disk_mb));
  for (const std::string& error : findings.errors) tell("echelon: {}\n", error);
  if (!findings.errors.empty()) return ExitStatus::failure;  // and no file has such rates
  if (output) output->write((findings.is_busy() ? fmt::format("{}\n", busy_mark) : "") + to_toml(machine));
  return ExitStatus::success;
}

ExitStatus run_bench(const BenchArguments& arguments) {
  if (const RankPlacement placement = place_this_process(); placement.transport == Transport::mpi)
    return add_processes(arguments, placement);
  const auto output = OutputFile::unless_empty("--output", arguments.output, "machine.toml");
  if (const auto backend = open_backend(parse_exactly<DeviceChoice>("--device", arguments.device), "--device");
      backend->kind() != DeviceKind::cpu) {
    const DiskSpec disk = disk_of(arguments);
    MachineSpec machine = measure_gpus(*backend, {.largest_size = arguments.largest_size / 16 * 16,
                                                  .sample_seconds = arguments.seconds / 10,
                                                  .num_rounds = std::max(1, arguments.rounds),
                                                  .progress = progress("links")});
    machine.nodes.front().disk = disk;
    fmt::print("{}", arguments.json ? gpus_to_json(machine) : gpus_to_text(machine));
    if (disk.is_known() && !arguments.json) fmt::print("{}", disk_line(disk, arguments.disk, arguments.disk_mb));
    if (output) output->write(to_toml(machine));
    return ExitStatus::success;
  }
  return bench_host(arguments, output);
}

}  // namespace

CommandAction declare_bench(CLI::App& app, const std::vector<std::string>& /*config_arguments*/) {
  // CLI11's options write to the struct that the action reads
  const auto arguments = std::make_shared<BenchArguments>();
  app.add_option("--output", arguments->output,
                 "also write the figures there, e.g. machines/NAME.toml, for metrics.machine");
  app.add_option("--device", arguments->device,
                 "cpu | cuda: this machine's NVIDIA GPUs | auto: cuda where there is one")
      ->capture_default_str();
  app.add_option("--largest-size", arguments->largest_size,
                 "with GPUs: largest matrix side; smaller is faster and covers less")
      ->check(in_range(16, 65536))
      ->capture_default_str();
  app.add_option("--seconds", arguments->seconds, "of measuring, for each rate")
      ->check(in_range(0.01, 60.0))
      ->capture_default_str();
  app.add_option("--rounds", arguments->rounds, "over all sizes of operations and collectives; 0: none of these")
      ->check(in_range(0, 100))
      ->capture_default_str();
  app.add_option("--disk", arguments->disk, "also measure the disk of this folder, in which files are written");
  app.add_option("--disk-mb", arguments->disk_mb, "MiB that are written there, three times, and removed")
      ->check(in_range(1, 1 << 20))
      ->capture_default_str();
  app.add_flag("--json", arguments->json, "the same as JSON");
  return [arguments] { return run_bench(*arguments); };
}

}  // namespace echelon
