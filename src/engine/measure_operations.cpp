#include "engine/measure_operations.h"

#include "base/clock.h"
#include "base/median.h"
#include "comm/thread/thread_world.h"
#include "machine/cores.h"
#include "machine/cpus.h"
#include "ops/cpu/cpu_ops.h"
#include "spec/groups.h"
#include "tensor/arena.h"

#include <algorithm>
#include <cmath>
#include <memory>

namespace echelon {
namespace {

/// What the optimizer touches has left the caches since the last step.
bool is_once_a_step(OpKind kind) { return kind == OpKind::adamw || kind == OpKind::sum_of_squares; }

/// One operation several times over, each on operands of its own, so that they come from where a step's come from: from
/// the caches that cores share, and from memory where they are large.
class Samples {
 public:
  Samples(const OperationSize& size, const Arena& pool) {
    Stack measure;
    (void)sample_operation(size, measure);
    const std::int64_t bytes = measure.peak_bytes();
    const std::int64_t spread_bytes = is_once_a_step(size.kind) ? pool.num_bytes() : recent_bytes,
                       most_copies = is_once_a_step(size.kind) ? 4096 : 16;
    const std::int64_t copies =
        std::clamp<std::int64_t>(spread_bytes / std::max<std::int64_t>(bytes, 1), 1, most_copies);
    for (std::int64_t copy = 0; copy < copies; ++copy) {
      Stack memory = pool.region(copy * bytes, bytes);
      operations_.push_back(sample_operation(size, memory));
    }
  }

  void repeat(Ops& ops, double seconds) {
    for (const double end = now_seconds() + seconds; now_seconds() < end;) (void)time(ops, 1);
  }

  /// Seconds of a call.
  double time(Ops& ops, std::int64_t calls) {
    const double start = now_seconds();
    for (std::int64_t call = 0; call < calls; ++call) run(ops, operations_[next_++ % operations_.size()]);
    return (now_seconds() - start) / static_cast<double>(calls);
  }

 private:
  static constexpr std::int64_t recent_bytes = 4 << 20;
  std::vector<Operation> operations_;
  std::size_t next_ = 0;
};

bool fits(const OperationSize& size, std::int64_t pool_bytes) {
  Stack measure;
  (void)sample_operation(size, measure);
  return measure.peak_bytes() <= pool_bytes;
}

constexpr double wake_seconds = 200e-6;  // until workers that slept have come

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
    Stack measure;
    const OpCost c = cost(sample_operation(size, measure));
    const auto of = [&](Cores cores) {
      return median(seconds_[static_cast<std::size_t>(num_cores_ > 1 ? cores : Cores::one)][index]);
    };
    return {.m = c.m,
            .n = c.n,
            .k = c.k,
            .amount = static_cast<double>(multiplies_matrices(size.kind) ? c.flops : c.bytes),
            .core_seconds = of(Cores::one),
            .busy_seconds = of(Cores::each),
            .shared_seconds = of(Cores::all)};
  }

 private:
  void tell(int round, int third) const {
    if (options_.progress) options_.progress((3.0 * round + third) / (3.0 * options_.num_rounds));
  }

  void time_from_one_thread(Cores cores, int num_threads) {
    const auto ops = make_cpu_ops({.num_threads = num_threads});
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      Samples samples(sizes_[i], *pools_.front());
      const double warm = samples.time(*ops, 1);
      if (cores == Cores::all) samples.repeat(*ops, wake_seconds);
      if (cores == Cores::one)
        calls_[i] = std::clamp<std::int64_t>(std::llround(options_.sample_seconds / std::max(warm, 1e-9)), 1, 100);
      seconds_[static_cast<std::size_t>(cores)][i].push_back(samples.time(*ops, calls_[i]));
    }
  }

  void time_on_each() {
    Coordinates degrees;
    degrees.fill(1);
    degrees[static_cast<std::size_t>(Axis::dp_shard)] = num_cores_;
    const std::vector<CpuSet> cores = divide_cores(allowed_cpus(), num_cores_);
    run_thread_ranks(MeshShape(degrees), {}, [&](Mesh& mesh) {
      if (!cores.empty()) bind_this_thread(cores[static_cast<std::size_t>(mesh.rank())]);
      const auto ops = make_cpu_ops({.num_threads = 1});
      Comm& world = mesh.comm(world_group);
      const Arena vote_arena(alignment_bytes);
      const Tensor sum = vote_arena.tensor(0, DType::float64, {1});
      for (std::size_t i = 0; i < sizes_.size(); ++i) {
        Samples samples(sizes_[i], *pools_[static_cast<std::size_t>(mesh.rank())]);
        (void)samples.time(*ops, 1);
        world.barrier().wait();
        *sum.as<double>() = samples.time(*ops, calls_[i]);
        world.all_reduce(sum, ReduceOp::sum).wait();
        if (mesh.rank() == 0)
          seconds_[static_cast<std::size_t>(Cores::each)][i].push_back(*sum.as<double>() / num_cores_);
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

void add_grid(std::vector<OperationSize>& sizes, std::initializer_list<OpKind> kinds,
              const std::array<std::vector<std::int64_t>, 3>& grid) {
  for (const OpKind kind : kinds)
    for (const DType dtype : formats)
      for (const std::int64_t m : grid[0])
        for (const std::int64_t n : grid[1])
          for (const std::int64_t k : grid[2]) sizes.push_back({kind, dtype, m, n, k});
}

}  // namespace

OperationCurves measure_operations(const std::vector<OperationSize>& wanted, const OperationMeasurement& options) {
  std::vector<OperationSize> sizes;
  std::copy_if(wanted.begin(), wanted.end(), std::back_inserter(sizes),
               [&](const OperationSize& size) { return fits(size, options.pool_bytes); });
  Session session(sizes, options);
  session.run();
  OperationCurves curves;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    curves[std::string(name_of(sizes[i].kind))][std::string(name_of(sizes[i].dtype))].push_back(session.point(i));
  return curves;
}

std::vector<OperationSize> usual_operation_sizes() {
  std::vector<OperationSize> sizes;
  const std::vector<std::int64_t> product = {16, 48, 128, 384, 1024};
  add_grid(sizes, {OpKind::matmul}, {product, product, product});
  const auto pairs = [](std::int64_t T) { return num_visible_pairs(T, T); };
  add_grid(sizes, {OpKind::attention, OpKind::attention_backward},
           {{{2, 8}, {pairs(32), pairs(128), pairs(512)}, {16, 64, 128}}});
  add_grid(sizes,
           {OpKind::add_bias, OpKind::bias_backward, OpKind::embedding, OpKind::embedding_backward,
            OpKind::add_positions, OpKind::positions_backward, OpKind::layer_norm, OpKind::layer_norm_backward_input,
            OpKind::layer_norm_backward_weight, OpKind::layer_norm_backward, OpKind::rms_norm,
            OpKind::rms_norm_backward_input, OpKind::rms_norm_backward_weight, OpKind::rms_norm_backward, OpKind::gelu,
            OpKind::gelu_backward},
           {{{32, 256, 2048}, {64, 256, 1024}, {1}}});
  add_grid(sizes, {OpKind::rope}, {{{256, 4096, 65536}, {32, 64, 128}, {1}}});
  add_grid(sizes, {OpKind::row_exp, OpKind::cross_entropy_backward}, {{{32, 256}, {512, 4096, 32768}, {1}}});
  add_grid(sizes,
           {OpKind::add, OpKind::copy, OpKind::fill, OpKind::scale, OpKind::swiglu, OpKind::swiglu_backward,
            OpKind::rescale_sums, OpKind::cross_entropy, OpKind::sum_of_squares, OpKind::adamw, OpKind::upload,
            OpKind::download},
           {{{1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 21}, {1}, {1}}});
  // Statistics have the format in which sums are formed.
  std::erase_if(sizes, [](const OperationSize& size) {
    return size.dtype == DType::bfloat16 && (size.kind == OpKind::rescale_sums || size.kind == OpKind::cross_entropy);
  });
  return sizes;
}

}  // namespace echelon
