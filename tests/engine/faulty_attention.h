// A step of context parallelism in which rank 1 does something else in place of one of its operations.
#pragma once

#include "blueprint/small_config.h"
#include "data/masked_batches.h"
#include "engine/rank_run.h"
#include "ops/cpu/cpu_ops.h"

#include <functional>

namespace echelon::testing {

/// In place of its n-th operation of a kind.
struct Fault {
  OpKind kind{};
  int nth = 0;
  std::function<void()> act;
};

class FaultyOps : public CpuOps {
 public:
  explicit FaultyOps(const Fault& fault) : CpuOps(CpuOptions{}), fault_(fault) {}
  void perform(const Operation& operation) override {
    if (operation.kind() == fault_.kind && num_calls_++ == fault_.nth) fault_.act();
    CpuOps::perform(operation);
  }

 private:
  Fault fault_;
  int num_calls_ = 0;
};

/// Two layers of four heads. Three ranks share a sequence; where they exchange heads two, and two rings of two.
inline RunConfig context_config(ContextMethod method) {
  RunConfig config = small_config();
  config.model.num_hidden_layers = 2;
  ParallelConfig& parallelism = config.parallelism;
  parallelism.context_parallel_method = method;
  parallelism.context_parallel_degree = method == ContextMethod::ulysses ? 2 : 3;
  if (method == ContextMethod::ulysses_ring) {
    parallelism.context_parallel_degree = 4;
    parallelism.context_parallel_ulysses_degree = 2;
  }
  config.training.global_batch_size = config.training.micro_batch_size;
  return config;
}

/// Of a rank's attentions, the first of layer 1.
inline int first_of_layer_1(ContextMethod method) {
  switch (method) {
    case ContextMethod::ring: return 3;        // hops
    case ContextMethod::all_gather: return 4;  // kv heads
    case ContextMethod::ulysses: return 1;
    case ContextMethod::ulysses_ring: return 2;
  }
  return 0;
}

inline void run_faulty_step(const Blueprint& blueprint, Mesh& mesh, const Fault& fault) {
  const FormulaTokens batches(1, blueprint.config().model.vocab_size);
  FaultyOps ops(mesh.rank() == 1 ? fault : Fault{.kind = fault.kind, .nth = -1, .act = {}});
  RankRun run(blueprint, mesh, ops);
  run.model().initialize(1, ops);
  (void)run.step().run(ProgramKind::training, {.batches = &batches, .adamw = {.lr = 1e-3}});
}

}  // namespace echelon::testing
