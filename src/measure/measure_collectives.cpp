#include "measure/measure_collectives.h"

#include "base/clock.h"
#include "base/median.h"
#include "comm/thread/thread_world.h"
#include "comm/traffic.h"
#include "engine/device/rank_cores.h"
#include "machine/cpus.h"
#include "spec/groups.h"
#include "tensor/arena.h"

#include <algorithm>
#include <cmath>

namespace echelon {
namespace {

constexpr std::int64_t largest_bytes = 16 << 20;

struct CollectiveCase {
  CommKind kind;
  std::int64_t bytes;
};

std::vector<CollectiveCase> cases() {
  std::vector<CollectiveCase> all = {{CommKind::barrier, 1}};
  for (const CommKind kind : {CommKind::all_reduce, CommKind::reduce_scatter, CommKind::all_gather, CommKind::send})
    for (const std::int64_t bytes :
         {std::int64_t{4} << 10, std::int64_t{64} << 10, std::int64_t{1} << 20, largest_bytes})
      all.push_back({kind, bytes});
  return all;
}

/// A rank's part in repeating one operation.
class Caller {
 public:
  Caller(Mesh& mesh, const Arena& memory) : comm_(mesh.comm(shard_group)), memory_(memory) {}

  void call(const CollectiveCase& c) {
    const std::int64_t n = comm_.size(), elements = c.bytes / static_cast<std::int64_t>(sizeof(float)) / n * n;
    const Tensor full = memory_.tensor(0, DType::float32, {elements});
    const Tensor shard = full.rows(comm_.rank() * (elements / n), elements / n);
    switch (c.kind) {
      case CommKind::barrier: return comm_.barrier().wait();
      case CommKind::all_reduce: return comm_.all_reduce(full, ReduceOp::max).wait();  // the maximum does not grow
      case CommKind::reduce_scatter: return comm_.reduce_scatter(shard, full, ReduceOp::max).wait();
      case CommKind::all_gather: return comm_.all_gather(full, shard).wait();
      case CommKind::send:
        return comm_.rank() % 2 == 0 ? comm_.send(full, comm_.rank() + 1).wait()
                                     : comm_.receive(full, comm_.rank() - 1).wait();
      case CommKind::broadcast:
      case CommKind::all_to_all:
      case CommKind::receive: return;
    }
  }

  /// Seconds per call, equal on all ranks.
  double time(const CollectiveCase& c, std::int64_t calls) {
    comm_.barrier().wait();
    const double start = now_seconds();
    for (std::int64_t i = 0; i < calls; ++i) call(c);
    comm_.barrier().wait();
    return agreed((now_seconds() - start) / static_cast<double>(calls));
  }

 private:
  double agreed(double seconds) {
    const Tensor number = memory_.tensor(largest_bytes, DType::float64, {1});
    *number.as<double>() = seconds;
    comm_.all_reduce(number, ReduceOp::max).wait();
    return *number.as<double>();
  }

  Comm& comm_;
  const Arena& memory_;
};

/// Groups of ranks that communicate at the same time.
MeshShape groups_of(int num_ranks, int num_groups) {
  return MeshShape({{Axis::dp_replicate, num_groups}, {Axis::dp_shard, num_ranks}});
}

using Found = std::function<void(const CollectiveCase&, double)>;

void measure_here(Mesh& mesh, const CollectiveMeasurement& options, const Found& found) {
  (void)claim_cores(RunConfig(), mesh);
  const Arena memory(largest_bytes + alignment_bytes);
  Caller caller(mesh, memory);
  for (const CollectiveCase& each : cases()) {
    const double warm = caller.time(each, 2);
    const std::int64_t calls = std::clamp<std::int64_t>(std::llround(options.sample_seconds / warm), 1, 500);
    std::vector<double> seconds;
    for (int round = 0; round < options.num_rounds; ++round) seconds.push_back(caller.time(each, calls));
    if (mesh.rank() == 0) found(each, median(std::move(seconds)));
  }
}

Found into(CollectivesByKind& curves, int num_ranks) {
  return [&curves, num_ranks](const CollectiveCase& c, double seconds) {
    curves[std::string(name_of(c.kind))].push_back({num_ranks, c.bytes, seconds});
  };
}

}  // namespace

CollectivesByKind measure_thread_collectives(const CollectiveMeasurement& options) {
  CollectivesByKind curves;
  const int few = std::max(2, num_usable_cores() / 2 * 2);
  const std::vector<int> rank_counts = {few, 2 * few, 4 * few};
  double done = 0;
  for (const int num_ranks : rank_counts) {
    run_thread_ranks(groups_of(num_ranks, 1), {},
                     [&](Mesh& mesh) { measure_here(mesh, options, into(curves, num_ranks)); });
    done += 1.0 / static_cast<double>(rank_counts.size());
    if (options.progress) options.progress(done);
  }
  return curves;
}

CollectivesByKind measure_process_collectives(const RankPlacement& placement, const CollectiveMeasurement& options) {
  constexpr double timeout_seconds = 300;
  CollectivesByKind curves;
  for (int num_ranks = 2; num_ranks <= placement.num_ranks; num_ranks *= 2) {
    if (placement.num_ranks % num_ranks != 0) num_ranks = placement.num_ranks;
    run_ranks(groups_of(num_ranks, placement.num_ranks / num_ranks), placement, timeout_seconds,
              [&](Mesh& mesh) { measure_here(mesh, options, into(curves, num_ranks)); });
  }
  return curves;
}

}  // namespace echelon
