// Times collectives among the devices of this host.
#include "base/clock.h"
#include "base/median.h"
#include "comm/thread/thread_world.h"
#include "measure/measure_device.h"
#include "spec/groups.h"
#include "tensor/arena.h"

#include <algorithm>
#include <array>

namespace echelon {
namespace {

constexpr Collective collectives[] = {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                      Collective::transfer};

MeshShape ring_of(int num_ranks) { return MeshShape({{Axis::dp_shard, num_ranks}}); }

/// One rank's part in the measurement of one collective of one size.
class Link {
 public:
  Link(RankDevice& device, Mesh& host, const Arena& arena, double sample_seconds)
      : device_(device),
        comm_(device.mesh().comm(shard_group)),
        host_(host.comm(world_group)),
        arena_(arena),
        sample_seconds_(sample_seconds) {}

  /// The slowest rank's seconds.
  [[nodiscard]] double seconds_of(Collective collective, std::int64_t num_bytes, int num_rounds) {
    const std::int64_t n = comm_.size(), elements = num_bytes / size_of(DType::bfloat16) / n * n;
    const Tensor full = arena_.tensor(0, DType::bfloat16, {elements}),
                 shard = full.rows(comm_.rank() * (elements / n), elements / n);
    const auto call = [&] {
      switch (collective) {
        case Collective::all_reduce: return comm_.all_reduce(full, ReduceOp::max).wait();
        case Collective::all_gather: return comm_.all_gather(full, shard).wait();
        case Collective::reduce_scatter: return comm_.reduce_scatter(shard, full, ReduceOp::max).wait();
        case Collective::transfer:
          return comm_.rank() == 0   ? comm_.send(full, 1).wait()
                 : comm_.rank() == 1 ? comm_.receive(full, 0).wait()
                                     : void();
        case Collective::all_to_all:
        case Collective::broadcast:
        case Collective::barrier: return;
      }
    };
    const auto run = [&](std::int64_t times) {
      host_.barrier().wait();
      const double start = now_seconds();
      for (std::int64_t i = 0; i < times; ++i) call();
      device_.ops().finish();
      return agreed((now_seconds() - start) / static_cast<double>(times));
    };
    (void)run(1);
    const auto times = static_cast<std::int64_t>(std::clamp(sample_seconds_ / std::max(run(1), 1e-7), 1.0, 2000.0));
    std::vector<double> seconds;
    for (int round = 0; round < num_rounds; ++round) seconds.push_back(run(times));
    return median(std::move(seconds));
  }

 private:
  double agreed(double seconds) {
    const Tensor x(reinterpret_cast<std::byte*>(&seconds), DType::float64, {1});
    host_.all_reduce(x, ReduceOp::max).wait();
    return seconds;
  }

  RankDevice& device_;
  Comm& comm_;
  Comm& host_;
  const Arena& arena_;
  double sample_seconds_;
};

}  // namespace

std::vector<CollectiveCurve> measure_links(Backend& backend, const DeviceMeasurement& options) {
  const std::int64_t largest_bytes =
      std::min<std::int64_t>(std::int64_t{256} << 20U, options.largest_size * options.largest_size);
  std::vector<CollectiveCurve> curves;
  const int most = backend.num_devices();
  for (int num_ranks = 2; num_ranks <= most; num_ranks = num_ranks < most ? std::min(2 * num_ranks, most) : most + 1) {
    if (options.progress) options.progress("links", static_cast<double>(num_ranks - 2) / most);
    run_thread_ranks(ring_of(num_ranks), {}, [&](Mesh& host) {
      const std::unique_ptr<RankDevice> device = backend.open(host, {});
      device->mesh().connect({shard_group});
      const Arena arena(aligned(largest_bytes), device->memory());
      device->ops().fill(arena.tensor(0, DType::bfloat16, {largest_bytes / 2}), 1);
      Link link(*device, host, arena, options.sample_seconds);
      for (const Collective collective : collectives) {
        CollectiveCurve curve = {.collective = collective, .num_ranks = num_ranks};
        for (std::int64_t bytes = 4096; bytes <= largest_bytes; bytes *= 16) {
          curve.bytes.push_back(static_cast<double>(bytes));
          curve.seconds.push_back(link.seconds_of(collective, bytes, options.num_rounds));
        }
        if (host.rank() == 0 && !curve.bytes.empty()) curves.push_back(curve);
      }
    });
  }
  if (options.progress) options.progress("links", 1);
  return curves;
}

}  // namespace echelon
