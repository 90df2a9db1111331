#include "measure/operations/measure_operations.h"

#include "base/median.h"
#include "machine/cpus.h"
#include "measure/operations/each_core.h"
#include "measure/operations/repeated_samples.h"
#include "ops/trace/trace_ops.h"
#include "tensor/arena.h"

#include <algorithm>
#include <cmath>
#include <memory>

namespace echelon {
namespace {

// Operands are close; what it costs that they are farther away in a step is measured by itself (measure_distances.h).
RepeatedSamples samples_of(const OperationSize& size, const Arena& pool) {
  return {size, pool, std::min(close_bytes, pool.num_bytes())};
}

/// What is timed in its place, where it would take long.
OperationSize timed_size(OperationSize size) {
  size.n = std::min(size.n, usual_sizes(size.kind).most_n);
  return size;
}

OpCost cost_of(const OperationSize& size) {
  Stack measure;
  return sample_operation(size, measure).cost;
}

/// Until sleeping workers have woken.
void wake(RepeatedSamples& samples, Ops& ops) {
  constexpr double wake_seconds = 200e-6;
  for (const double end = now_seconds() + wake_seconds; now_seconds() < end;) (void)samples.time(ops, 1);
}

enum class Cores : std::uint8_t { one, each, all };

/// Seconds of every size, in each round and on each choice of cores.
class Session {
 public:
  Session(const std::vector<OperationSize>& sizes, const OperationMeasurement& options)
      : sizes_(sizes), options_(options), num_cores_(num_usable_cores()) {
    for (int core = 0; core < num_cores_; ++core) pools_.push_back(std::make_unique<Arena>(options.pool_bytes));
    calls_.resize(sizes.size(), 1);
    for (auto& seconds : seconds_) seconds.resize(sizes.size());
  }

  void run() {
    for (int round = 0; round < options_.num_rounds; ++round) {
      time_from_one_thread(Cores::one, 1);
      tell(round, 1);
      if (num_cores_ > 1) time_from_one_thread(Cores::all, num_cores_);
      tell(round, 2);
      if (num_cores_ > 1) time_on_each();
      tell(round, 3);
    }
  }

  [[nodiscard]] OperationPoint point(std::size_t index) const {
    const OperationSize& size = sizes_[index];
    const auto amount = [&](const OpCost& cost) {
      return static_cast<double>(multiplies_matrices(size.kind) ? cost.flops : cost.bytes);
    };
    const OpCost c = cost_of(size);
    const double scale = amount(c) / amount(cost_of(timed_size(size)));
    const auto of = [&](Cores cores) {
      return scale * median(seconds_[static_cast<std::size_t>(num_cores_ > 1 ? cores : Cores::one)][index]);
    };
    return {.m = c.m,
            .n = c.n,
            .k = c.k,
            .amount = amount(c),
            .core_seconds = of(Cores::one),
            .busy_seconds = of(Cores::each),
            .shared_seconds = of(Cores::all)};
  }

 private:
  void tell(int round, int third) const {
    if (options_.progress) options_.progress((3.0 * round + third) / (3.0 * options_.num_rounds));
  }

  void time_from_one_thread(Cores cores, int num_threads) {
    const auto ops = make_cpu_ops({.num_threads = num_threads, .products = options_.products});
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      RepeatedSamples samples = samples_of(timed_size(sizes_[i]), *pools_.front());
      const double warm = samples.time(*ops, 1);
      if (cores == Cores::all) wake(samples, *ops);
      if (cores == Cores::one)
        calls_[i] = std::clamp<std::int64_t>(std::llround(options_.sample_seconds / std::max(warm, 1e-9)), 1, 100);
      seconds_[static_cast<std::size_t>(cores)][i].push_back(samples.time(*ops, calls_[i]));
    }
  }

  void time_on_each() {
    on_each_core(num_cores_, options_.products, [&](EachCore& core) {
      for (std::size_t i = 0; i < sizes_.size(); ++i) {
        RepeatedSamples samples = samples_of(timed_size(sizes_[i]), *pools_[static_cast<std::size_t>(core.index())]);
        (void)samples.time(core.ops(), 1);
        core.await_all();
        const double seconds = core.means({samples.time(core.ops(), calls_[i])}).front();
        if (core.index() == 0) seconds_[static_cast<std::size_t>(Cores::each)][i].push_back(seconds);
      }
    });
  }

  const std::vector<OperationSize>& sizes_;
  const OperationMeasurement& options_;
  const int num_cores_;
  std::vector<std::unique_ptr<Arena>> pools_;                // by core
  std::vector<std::int64_t> calls_;                          // by size
  std::array<std::vector<std::vector<double>>, 3> seconds_;  // by choice of cores, size and round
};

constexpr DType formats[] = {DType::float32, DType::bfloat16, DType::float64};

void add_sizes(std::vector<OperationSize>& sizes, OpKind kind, bool is_weight_gradient) {
  const SampleSizes usual = usual_sizes(kind);
  for (const DType dtype : formats) {
    if (dtype == DType::bfloat16 && !usual.has_activations) continue;
    for (const std::int64_t m : usual.m)
      for (const std::int64_t n : usual.n)
        for (const std::int64_t k : usual.k) sizes.push_back({kind, dtype, m, n, k, is_weight_gradient});
  }
}

}  // namespace

OperationCurves measure_operations(const std::vector<OperationSize>& wanted, const OperationMeasurement& options) {
  std::vector<OperationSize> sizes;
  std::copy_if(wanted.begin(), wanted.end(), std::back_inserter(sizes),
               [&](const OperationSize& size) { return operand_bytes(timed_size(size)) <= options.pool_bytes; });
  Session session(sizes, options);
  session.run();
  OperationCurves curves;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    curves[curve_name(sizes[i].kind, sizes[i].is_weight_gradient)][std::string(name_of(sizes[i].dtype))].push_back(
        session.point(i));
  return curves;
}

std::vector<OperationSize> usual_operation_sizes() {
  std::vector<OperationSize> sizes;
  for_each_curve([&](OpKind kind, bool is_weight_gradient) { add_sizes(sizes, kind, is_weight_gradient); });
  return sizes;
}

}  // namespace echelon
