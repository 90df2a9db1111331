// Schedules and options that the tests of this folder go through.
#pragma once

#include "schedule/lower.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace echelon {

using Generator = Schedule (*)(int num_stages, int num_microbatches);
inline constexpr Generator generators[] = {naive_schedule, gpipe_schedule, one_f_one_b_schedule};

/// Stages of two units, of which the first sums replicas; the ends hold a tied weight if `tied`.
inline LoweringOptions train_options(int num_stages, bool tied = true) {
  LoweringOptions options;
  for (int stage = 0; stage < num_stages; ++stage) {
    const bool is_end = stage == 0 || stage == num_stages - 1;
    options.stages.push_back({.num_units = 2, .has_tied_weight = tied && is_end, .unit_sums_replicas = {true, false, false}});
  }
  options.gathers_parameters = true;
  options.ties_across_ranks = tied && num_stages > 1;
  return options;
}

inline const Action* find(const Program& program, ActionKind kind, int microbatch, int unit = whole_stage) {
  for (const Action& action : program) {
    if (action.kind == kind && action.microbatch == microbatch && action.unit == unit) return &action;
  }
  return nullptr;
}

}  // namespace echelon
