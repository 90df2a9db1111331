// Operations on every core of this host at the same time, each from a thread rank of its own.
#pragma once

#include "comm/thread/thread_world.h"
#include "machine/cores.h"
#include "machine/cpus.h"
#include "ops/cpu/cpu_ops.h"
#include "spec/groups.h"
#include "tensor/arena.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

namespace echelon {

/// One of the cores, from its own thread.
class EachCore {
 public:
  EachCore(Mesh& mesh, const std::optional<ProductChoice>& products)
      : world_(mesh.comm(world_group)), ops_(make_cpu_ops({.num_threads = 1, .products = products})) {}

  [[nodiscard]] Ops& ops() { return *ops_; }
  [[nodiscard]] int index() const { return world_.rank(); }
  void await_all() { world_.barrier().wait(); }
  /// Over all cores, of values that each has as many of.
  [[nodiscard]] std::vector<double> means(std::vector<double> values) {
    const Arena memory(aligned(std::ssize(values) * size_of(DType::float64)));
    const Tensor sums = memory.tensor(0, DType::float64, {std::ssize(values)});
    std::copy(values.begin(), values.end(), sums.as<double>());
    world_.all_reduce(sums, ReduceOp::sum).wait();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = sums.as<double>()[i] / world_.size();
    return values;
  }

 private:
  Comm& world_;
  std::unique_ptr<Ops> ops_;
};

/// Calls f(EachCore&) on all of them.
template <class F>
void on_each_core(int num_cores, const std::optional<ProductChoice>& products, F&& f) {
  const std::vector<CpuSet> cores = divide_cores(allowed_cpus(), num_cores);
  run_thread_ranks(MeshShape({{Axis::dp_shard, num_cores}}), {}, [&](Mesh& mesh) {
    if (!cores.empty()) bind_this_thread(cores[static_cast<std::size_t>(mesh.rank())]);
    EachCore core(mesh, products);
    f(core);
  });
}

}  // namespace echelon
