// `verify` reports nothing where there is no fault, over the sweep's rows with context parallelism: no result differs
// from one rank, and nothing that a layer reads.
#include "verify/verify.h"
#include "engine/layout_run.h"
#include "parity/sweep/sweep.h"
#include "verify/activations.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

/// Those that cp ranks share, in which every setting occurs, or in a long sweep all of them.
std::vector<std::size_t> rows_with_context(const SweepTable& table) {
  std::vector<SweepRow> rows;
  std::vector<std::size_t> indices;
  for (std::size_t row = 0; row < all_rows(table).size(); ++row) {
    if (run_of(table, all_rows(table)[row]).config.parallelism.context_parallel_degree == 1) continue;
    rows.push_back(all_rows(table)[row]);
    indices.push_back(row);
  }
  if (is_long_sweep()) return indices;
  std::vector<std::size_t> some;
  for (const std::size_t row : rows_with_every_setting(table, rows)) some.push_back(indices[row]);
  return some;
}

/// As `echelon verify` takes it: sequences keep their order.
SweepRun verified_run(std::size_t row) {
  SweepRun run = run_of(sweep_table(), all_rows(sweep_table())[row]);
  run.config.data.balance_batch = false;
  run.config.training.steps = 2;
  return run;
}

std::string sentence_of(const Verdict& verdict) { return verdict.diagnosis ? verdict.diagnosis->sentence() : ""; }

TEST(SweepControls, VerifyFindsNothing) {
  int num_rows = 0;
  for (const std::size_t row : rows_with_context(sweep_table())) {
    const SweepRun run = verified_run(row);
    const FormulaBatches batches(run.config, run.targets);
    const Verdict verdict = verify(run.config, batches, {.num_steps = 1});
    EXPECT_TRUE(verdict.is_equal()) << sentence_of(verdict) << "\n"
                                    << describe(sweep_table(), all_rows(sweep_table())[row]);
    ++num_rows;
  }
  EXPECT_GE(num_rows, 12);
}

// What a diagnosis would compare.
TEST(SweepControls, NothingThatLayersReadDiffers) {
  for (const std::size_t row : rows_with_context(sweep_table())) {
    const SweepRun run = verified_run(row);
    const FormulaBatches batches(run.config, run.targets);
    const Blueprint blueprint(run.config);
    const Reference reference;
    const Interpose nothing;
    const Case at = {.blueprint = blueprint,
                     .batches = batches,
                     .interpose = nothing,
                     .reference = reference,
                     .differences = {},
                     .results = {},
                     .routers = {}};
    const Activations expected(at, 1);
    for (const bool is_backward : {false, true}) {
      const FirstWrongRead first = first_wrong_read(at, expected, is_backward);
      EXPECT_TRUE(first.wrong.empty()) << "row " << row << ": " << describe_read(at, 1, first) << "\n"
                                       << describe(sweep_table(), all_rows(sweep_table())[row]);
    }
  }
}

}  // namespace
}  // namespace echelon::testing
