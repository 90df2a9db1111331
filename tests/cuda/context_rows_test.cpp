// The rows of the short sweep that have context parallelism, on emulated GPUs, one for each rank: they equal one rank
// on a processor, and the locks hold.
#include "cuda/cuda_backend.h"
#include "cuda/emulated/runtime.h"
#include "parity/locks.h"
#include "parity/sweep/sweep.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

struct ContextRow {
  const SweepTable* table = nullptr;
  std::size_t row = 0;
};

/// Emulated kernels are slow: with ECHELON_SWEEP=long all of them, otherwise those of few sequences and layers.
bool is_run(const RunConfig& config) {
  constexpr std::int64_t few = 64;
  return config.parallelism.context_parallel_degree > 1 &&
         (is_long_sweep() || config.training.global_batch_size * config.model.num_hidden_layers <= few);
}

std::vector<ContextRow> context_rows_on_gpus() {
  std::vector<ContextRow> rows;
  for (const SweepTable* const table : {&sweep_table(), &mixture_table()}) {
    const std::vector<SweepRow>& all = all_rows(*table);
    for (const std::size_t row : rows_with_every_setting(*table, all))
      if (is_run(run_of(*table, all[row]).config)) rows.push_back({table, row});
  }
  return rows;
}

class ContextRowsOnGpus : public ::testing::TestWithParam<ContextRow> {
 protected:
  ~ContextRowsOnGpus() override { emulated::set_num_devices(1); }
};

TEST_P(ContextRowsOnGpus, EqualOneProcessor) {
  const auto& [table, row] = GetParam();
  SweepRun run = run_of(*table, all_rows(*table)[row]);
  SCOPED_TRACE(fmt::format("row {} of {}:\n{}", row, table->name, describe(*table, all_rows(*table)[row])));
  run.config.training.steps = 1;
  emulated::set_num_devices(run.config.mesh_shape().num_ranks());
  std::string reason;
  const std::unique_ptr<Backend> backend = cuda::make_cuda_backend(reason);
  ASSERT_NE(backend, nullptr) << reason;
  const auto at_end = [&](const RankView& rank) {
    expect_locks_hold(rank, {.training = run.config.training.steps, .evaluation = 1});
  };
  const auto actual = run_training(run.config, {.at_end = at_end, .targets = run.targets, .backend = backend.get()});
  expect_equal(*actual, *run_training(baseline_of(run.config), {.targets = run.targets}), scalar_tolerance,
               tensor_tolerance, run.config.optimizer.lr);
}

std::string name_of_context_row(const ::testing::TestParamInfo<ContextRow>& info) {
  const auto& [table, row] = info.param;
  return fmt::format("{}{:03}On{}", table == &sweep_table() ? "Row" : "Mixture", row, all_rows(*table)[row].world_size);
}

INSTANTIATE_TEST_SUITE_P(Sweep, ContextRowsOnGpus, ::testing::ValuesIn(context_rows_on_gpus()), name_of_context_row);

}  // namespace
}  // namespace echelon::testing
