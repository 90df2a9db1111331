#include "predict/saving/predicted_save.h"

#include "blueprint/save_plan.h"
#include "predict/host/host_step.h"
#include "predict/machine/device_map.h"
#include "predict/simulation/simulate.h"

#include <algorithm>
#include <limits>
#include <map>

namespace echelon {
namespace {

/// The folder of the step, the files, and the manifest become durable one after the other.
constexpr double num_syncs = 3;

/// What a host writes, and how.
struct HostBytes {
  const DiskSpec* disk = nullptr;
  std::int64_t num_bytes = 0;
};

std::vector<HostBytes> bytes_by_host(const SavePlan& plan, const MeshShape& mesh, const MachineSpec& machine) {
  const DeviceMap devices(mesh, machine);
  std::map<int, HostBytes> hosts;
  for (const PlannedFile& file : plan.files()) {
    HostBytes& host = hosts[devices.node_of(file.rank)];
    host.disk = &devices.kind_of(file.rank).disk;
    host.num_bytes += file.num_bytes;
  }
  std::vector<HostBytes> all;
  for (const auto& [node, host] : hosts) all.push_back(host);
  return all;
}

/// Hosts write at the same time; none if the disk of one was not measured.
std::optional<double> slowest(const std::vector<HostBytes>& hosts, double DiskSpec::*bandwidth, double num_small) {
  double most = 0;
  for (const HostBytes& host : hosts) {
    if (host.disk->*bandwidth <= 0) return std::nullopt;
    most = std::max(most,
                    static_cast<double>(host.num_bytes) / host.disk->*bandwidth + num_small * host.disk->sync_seconds);
  }
  return most;
}

PredictedSave bytes_of(const SavePlan& plan) {
  return {.num_files = std::ssize(plan.files()),
          .num_bytes = plan.num_bytes(),
          .largest_file_bytes = plan.most_bytes(),
          .most_manifest_bytes = plan.most_manifest_bytes()};
}

std::int64_t snapshot_bytes(const RankBlueprint& rank) {
  return rank.memory(ProgramKind::training).peak_bytes(MemoryCategory::snapshot) +
         rank.host_memory().peak_bytes(MemoryCategory::snapshot);
}

/// Over all ranks.
std::int64_t bytes_in_place(const Blueprint& blueprint) {
  const std::vector<RankBlueprint> ranks = blueprint.pipeline_ranks();
  std::int64_t sum = 0;
  for (const RankBlueprint& rank : ranks)
    sum += bytes_in_place(rank.part(), blueprint.config().checkpoint.snapshot_bytes);
  return sum * blueprint.mesh().num_ranks() / std::ssize(ranks);
}

/// From the moment when a rank has taken its snapshot to its first update: the shortest of the ranks of a pipeline.
double seconds_before_updates(const Blueprint& blueprint, const HostStep& step) {
  struct Times {
    double taken = 0, update = std::numeric_limits<double>::infinity();
  };
  std::map<int, Times> times;  // by pipeline rank
  for (const Event& event : step.timeline.events) {
    const Program& program =
        blueprint.programs(ProgramKind::training_with_snapshot)[static_cast<std::size_t>(event.rank)];
    const ActionKind kind = program[static_cast<std::size_t>(event.action_id)].kind;
    Times& own = times[event.rank];
    if (kind == ActionKind::take_snapshot) own.taken = std::max(own.taken, event.end);
    if (kind == ActionKind::update) own.update = std::min(own.update, event.start);
  }
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [rank, own] : times) least = std::min(least, own.update - own.taken);
  return std::max(0.0, least);
}

/// Of a core: the writer copies each byte to its buffer, digests it, and gives it to the system. None: not measured.
std::optional<double> writer_core_seconds(const HostSpec& host, std::int64_t num_bytes) {
  if (host.core.copy_bandwidth <= 0 || host.core.read_bandwidth <= 0 || host.disk.write_core_bandwidth <= 0)
    return std::nullopt;
  return static_cast<double>(num_bytes) *
         (2 / host.core.copy_bandwidth + 1 / host.core.read_bandwidth + 1 / host.disk.write_core_bandwidth);
}

/// By how much a step is longer during which a thread of nice 10 works. It has a core that is idle. Of a core that a
/// thread of nice 0 needs too, Linux gives it 110 of 1134 parts.
double slowed_by_writer(const HostSpec& host, const HostStep& step, double core_seconds) {
  constexpr double share = 110.0 / (110 + 1024);
  const double num_cores = static_cast<double>(host.num_cores),
               busy = std::clamp(step.busy_core_seconds / (step.seconds * num_cores), 0.0, 1.0),
               active = std::min(step.seconds, core_seconds / (1 - busy + busy * share));
  return active * busy * share / num_cores;
}

PredictedSnapshot snapshot_of(const Blueprint& blueprint) {
  PredictedSnapshot snapshot;
  for (const RankBlueprint& rank : blueprint.pipeline_ranks())
    snapshot.num_bytes = std::max(snapshot.num_bytes, snapshot_bytes(rank));
  return snapshot;
}

/// What nothing hides on a CPU.
PredictedSnapshot snapshot_on_host(const HostSpec& host, HostRanks ranks, const Blueprint& blueprint,
                                   const HostLoad& load, std::int64_t num_written) {
  const auto step_of = [&](ProgramKind kind) {
    return ranks == HostRanks::threads ? host_step(blueprint, host, load, kind)
                                       : host_step_of_processes(blueprint, host, load, kind);
  };
  const HostStep step = step_of(ProgramKind::training_with_snapshot);
  PredictedSnapshot snapshot = snapshot_of(blueprint);
  snapshot.step_seconds = step.seconds;
  const std::int64_t in_place = bytes_in_place(blueprint);
  if (in_place == 0) snapshot.waiting_seconds = 0;
  if (in_place > 0 && host.disk.is_known())
    snapshot.waiting_seconds = std::max(
        0.0, static_cast<double>(in_place) / host.disk.write_bandwidth - seconds_before_updates(blueprint, step));
  snapshot.step_seconds += snapshot.waiting_seconds.value_or(0);
  snapshot.writer_core_seconds = writer_core_seconds(host, num_written);
  if (snapshot.writer_core_seconds)
    snapshot.step_seconds += slowed_by_writer(host, step, *snapshot.writer_core_seconds);
  snapshot.longer_seconds = snapshot.step_seconds - step_of(ProgramKind::training).seconds;
  return snapshot;
}

/// The host's memory takes the copies while the devices wait; the threads that write them need no device.
PredictedSnapshot snapshot_on_devices(const Blueprint& blueprint, const MachineSpec& machine) {
  PredictedSnapshot snapshot = snapshot_of(blueprint);
  snapshot.step_seconds = simulate(blueprint, machine, {.kind = ProgramKind::training_with_snapshot}).step_seconds;
  snapshot.longer_seconds = snapshot.step_seconds - simulate(blueprint, machine).step_seconds;
  snapshot.waiting_seconds = 0;
  return snapshot;
}

PredictedSave with_seconds(const SavePlan& plan, const std::vector<HostBytes>& hosts) {
  PredictedSave save = bytes_of(plan);
  save.save_seconds = slowest(hosts, &DiskSpec::write_bandwidth, num_syncs);
  save.load_seconds = slowest(hosts, &DiskSpec::read_bandwidth, 0);
  return save;
}

}  // namespace

PredictedSave planned_save(const Blueprint& blueprint) { return bytes_of(SavePlan(blueprint)); }

PredictedSave predicted_save_on_disk(const DiskSpec& disk, const Blueprint& blueprint) {
  const SavePlan plan(blueprint);
  return with_seconds(plan, {{&disk, plan.num_bytes()}});
}

PredictedSave predicted_save(const Blueprint& blueprint, const MachineSpec& machine) {
  if (machine.host) return predicted_save_on(*machine.host, HostRanks::threads, blueprint);
  const SavePlan plan(blueprint);
  PredictedSave save = with_seconds(plan, bytes_by_host(plan, blueprint.mesh(), machine));
  if (blueprint.config().checkpoint.saves_asynchronously()) save.snapshot = snapshot_on_devices(blueprint, machine);
  return save;
}

PredictedSave predicted_save_on(const HostSpec& host, HostRanks ranks, const Blueprint& blueprint,
                                const HostLoad& load) {
  PredictedSave save = predicted_save_on_disk(host.disk, blueprint);
  if (blueprint.config().checkpoint.saves_asynchronously())
    save.snapshot = snapshot_on_host(host, ranks, blueprint, load, save.num_bytes);
  return save;
}

}  // namespace echelon
