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

/// For several stages a rank, too: the head borrows the tied weight where the embedding lies beside it.
inline LoweringOptions train_options(const Schedule& schedule, bool tied = true) {
  LoweringOptions options = train_options(schedule.num_stages, tied);
  const bool is_shared = tied && schedule.num_stages > 1 && schedule.rank_of_stage.front() == schedule.rank_of_stage.back();
  options.ties_across_ranks = options.ties_across_ranks && !is_shared;
  if (is_shared) {
    options.stages.back().has_tied_weight = false;
    options.stages.back().borrows_tied_weight = true;
  }
  return options;
}

/// Some schedule of each sort: placed in a line, a loop and a V, with weight gradients at once and put off.
inline std::vector<Schedule> schedules_of(int num_ranks, int num_microbatches) {
  std::vector<Schedule> all;
  for (const Generator generate : generators) all.push_back(generate(num_ranks, num_microbatches));
  for (const Generator generate : {zb_h1_schedule, zb_h2_schedule}) all.push_back(generate(num_ranks, num_microbatches));
  for (const int num_virtual : {2, 3}) {
    all.push_back(interleaved_one_f_one_b_schedule(num_ranks, num_microbatches, num_virtual));
    all.push_back(interleaved_zero_bubble_schedule(num_ranks, num_microbatches, num_virtual));
  }
  return all;
}

inline const Action* find(const Program& program, ActionKind kind, int microbatch, int unit = whole_stage) {
  for (const Action& action : program) {
    if (action.kind == kind && action.microbatch == microbatch && action.unit == unit) return &action;
  }
  return nullptr;
}

}  // namespace echelon
