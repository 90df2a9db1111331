#include "measure/operations/measure_distances.h"

#include "base/median.h"
#include "machine/cpus.h"
#include "measure/operations/each_core.h"
#include "measure/operations/repeated_samples.h"
#include "ops/trace/trace_ops.h"

#include <cmath>
#include <memory>

namespace echelon {
namespace {

using Distances = std::vector<std::int64_t>;

Distances distances_in(std::int64_t pool_bytes) {
  Distances distances = {2 << 20, 8 << 20, 32 << 20, 128 << 20, 256 << 20};
  std::erase_if(distances, [&](std::int64_t distance) { return distance > pool_bytes; });
  return distances;
}

constexpr DType timed_formats[] = {DType::float32, DType::bfloat16};

/// None of a kind that is not timed, or whose operands have another format.
std::optional<OperationSize> timed_size(OpKind kind, bool is_weight_gradient, DType dtype, std::int64_t pool_bytes) {
  const SampleSizes usual = usual_sizes(kind);
  if (dtype == DType::bfloat16 && !usual.has_activations) return std::nullopt;
  constexpr double wanted_bytes = static_cast<double>(close_bytes) / 2;
  std::optional<OperationSize> best;
  double best_ratio = 0;
  for (const std::int64_t m : usual.m)
    for (const std::int64_t n : usual.n)
      for (const std::int64_t k : usual.k) {
        const OperationSize size = {kind, dtype, m, std::min(n, usual.most_n), k, is_weight_gradient};
        const std::int64_t bytes = operand_bytes(size);
        const double ratio = std::abs(std::log(static_cast<double>(bytes) / wanted_bytes));
        if (bytes > pool_bytes / 4 || (best && ratio >= best_ratio)) continue;
        best = size;
        best_ratio = ratio;
      }
  return best;
}

/// Seconds of an operation by distance, from close_bytes on. The last distance has the sets to itself that the others
/// leave, so that nothing touches them meanwhile.
class Timer {
 public:
  Timer(const OperationSize& size, const Arena& pool, const DistanceMeasurement& options)
      : samples_(size, pool, pool.num_bytes()),
        bytes_(operand_bytes(size)),
        options_(options),
        distances_(distances_in(options.pool_bytes)) {}

  /// `starts` is called before what is timed.
  template <class Starts>
  [[nodiscard]] std::vector<double> time(Ops& ops, Starts&& starts) {
    std::vector<std::vector<double>> seconds(1 + distances_.size());
    for (int round = 0; round < options_.num_rounds; ++round) {
      seconds[0].push_back(time_close(ops, close_bytes, starts));
      for (std::size_t i = 0; i < distances_.size(); ++i)
        seconds[i + 1].push_back(i + 1 < distances_.size() ? time_close(ops, distances_[i], starts)
                                                           : time_farthest(ops, starts));
    }
    std::vector<double> medians;
    for (std::vector<double>& each : seconds) medians.push_back(median(std::move(each)));
    return medians;
  }

 private:
  template <class Starts>
  double time_close(Ops& ops, std::int64_t distance, Starts&& starts) {
    const std::int64_t sets = distance / bytes_;
    samples_.use(0, sets);
    const double warm = samples_.time(ops, std::max<std::int64_t>(1, std::min(sets, samples_.num_sets())));
    calls_ = std::clamp<std::int64_t>(std::llround(options_.sample_seconds / std::max(warm, 1e-9)), 2, 200);
    starts();
    return samples_.time(ops, calls_);
  }
  template <class Starts>
  double time_farthest(Ops& ops, Starts&& starts) {
    const std::int64_t before = distances_.size() > 1 ? distances_[distances_.size() - 2] : close_bytes,
                       first = std::min(before / bytes_ + 1, samples_.num_sets() - 1),
                       count = samples_.num_sets() - first;
    samples_.use(first + done_ % count, count - done_ % count);
    const std::int64_t calls = std::min(calls_, count - done_ % count);
    done_ += calls;
    starts();
    return samples_.time(ops, calls);
  }

  RepeatedSamples samples_;
  std::int64_t bytes_;
  const DistanceMeasurement& options_;
  Distances distances_;
  std::int64_t calls_ = 1, done_ = 0;
};

class DistanceSession {
 public:
  explicit DistanceSession(const DistanceMeasurement& options) : options_(options), num_cores_(num_usable_cores()) {
    for (int core = 0; core < num_cores_; ++core) pools_.push_back(std::make_unique<Arena>(options.pool_bytes));
    for_each_curve([&](OpKind kind, bool is_weight_gradient) {
      for (const DType dtype : timed_formats)
        if (const auto size = timed_size(kind, is_weight_gradient, dtype, options.pool_bytes)) sizes_.push_back(*size);
    });
    busy_.resize(sizes_.size());
    shared_.resize(sizes_.size());
  }

  DistanceCurves run() {
    const Distances distances = distances_in(options_.pool_bytes);
    if (distances.empty()) return {};
    time_together();
    time_on_each();
    DistanceCurves curves;
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      std::vector<DistancePoint>& curve =
          curves[curve_name(sizes_[i].kind, sizes_[i].is_weight_gradient)][std::string(name_of(sizes_[i].dtype))];
      for (std::size_t d = 0; d < distances.size(); ++d)
        curve.push_back({distances[d], more(busy_[i], d, sizes_[i]), more(shared_[i], d, sizes_[i])});
    }
    return curves;
  }

 private:
  /// Per byte. A machine file's values are above 0.
  static double more(const std::vector<double>& seconds, std::size_t distance, const OperationSize& size) {
    constexpr double least = 1e-15;
    return std::max(least, (seconds[distance + 1] - seconds[0]) / static_cast<double>(operand_bytes(size)));
  }

  void time_together() {
    const auto ops = make_cpu_ops({.num_threads = num_cores_, .products = options_.products});
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      shared_[i] = Timer(sizes_[i], *pools_.front(), options_).time(*ops, [] {});
      tell(0, i);
    }
  }

  void time_on_each() {
    on_each_core(num_cores_, options_.products, [&](EachCore& core) {
      for (std::size_t i = 0; i < sizes_.size(); ++i) {
        Timer timer(sizes_[i], *pools_[static_cast<std::size_t>(core.index())], options_);
        const std::vector<double> seconds = core.means(timer.time(core.ops(), [&] { core.await_all(); }));
        if (core.index() != 0) continue;
        busy_[i] = seconds;
        tell(1, i);
      }
    });
  }

  void tell(int half, std::size_t index) const {
    if (options_.progress)
      options_.progress((half + static_cast<double>(index + 1) / static_cast<double>(sizes_.size())) / 2);
  }

  const DistanceMeasurement& options_;
  const int num_cores_;
  std::vector<std::unique_ptr<Arena>> pools_;  // by core
  std::vector<OperationSize> sizes_;
  std::vector<std::vector<double>> busy_, shared_;  // seconds by size and distance
};

}  // namespace

DistanceCurves measure_distances(const DistanceMeasurement& options) { return DistanceSession(options).run(); }

}  // namespace echelon
