// The rows of this run: a few in which every setting occurs, or with ECHELON_SWEEP=long all of them. ECHELON_SWEEP_SEED
// draws others.
#pragma once

#include "parity/sweep/rows.h"

namespace echelon::testing {

inline constexpr unsigned usual_seed = 1;
inline constexpr int times_each_pair = 3;
inline constexpr double scalar_tolerance = 1e-11, tensor_tolerance = 1e-9;

[[nodiscard]] unsigned sweep_seed();
[[nodiscard]] bool is_long_sweep();

/// Of the seed, drawn once.
[[nodiscard]] const std::vector<SweepRow>& all_rows(const SweepTable& table);

[[nodiscard]] SweepRun run_of(const SweepTable& table, const SweepRow& row);

/// What a row is compared with: one rank, the whole batch in one microbatch, nothing recomputed.
[[nodiscard]] RunConfig baseline_of(const RunConfig& config);

}  // namespace echelon::testing
