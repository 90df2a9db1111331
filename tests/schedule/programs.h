// Schedules and options that the tests of this folder go through.
#pragma once

#include "schedule/generators/catalog.h"
#include "schedule/lowering/lower.h"

#include <gtest/gtest.h>

#include <algorithm>
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
    options.stages.push_back(
        {.num_units = 2, .has_tied_weight = tied && is_end, .unit_sums_replicas = {true, false, false}});
  }
  options.gathers_parameters = true;
  options.ties_across_ranks = tied && num_stages > 1;
  options.backward_reads_count = true;  // the router losses of a mixture do
  return options;
}

/// For several stages a rank, too: the head borrows the tied weight where the embedding lies beside it.
inline LoweringOptions train_options(const Schedule& schedule, bool tied = true) {
  LoweringOptions options = train_options(schedule.num_stages, tied);
  const bool is_shared =
      tied && schedule.num_stages > 1 && schedule.rank_of_stage.front() == schedule.rank_of_stage.back();
  options.ties_across_ranks = options.ties_across_ranks && !is_shared;
  if (is_shared) {
    options.stages.back().has_tied_weight = false;
    options.stages.back().borrows_tied_weight = true;
  }
  return options;
}

/// The same at a level of ZeRO, with replicas beside it and a format of its own for reductions if asked.
inline LoweringOptions at_level(LoweringOptions options, int level, KeepsGathered keeps = KeepsGathered::for_next_pass,
                                bool hybrid = false, bool converts = false) {
  options.gathers_parameters = level == 1 || level == 2;
  options.shards_gradients = level >= 2;
  options.shards_parameters = level >= 3;
  options.keeps_gathered = keeps;
  options.reduces_parts = hybrid;
  options.converts_gradients = converts;
  return options;
}

inline constexpr KeepsGathered all_keeps[] = {KeepsGathered::for_next_pass, KeepsGathered::for_backward,
                                              KeepsGathered::for_step};

/// Every schedule that takes so many microbatches, with two and three virtual stages where it has a choice.
inline std::vector<Schedule> schedules_of(int num_ranks, int num_microbatches) {
  std::vector<Schedule> all;
  for (const ScheduleEntry& entry : all_schedules()) {
    if (num_microbatches < entry.microbatches_per_rank * num_ranks) continue;
    for (int num_virtual = std::min(2, entry.most_virtual); num_virtual <= std::min(3, entry.most_virtual);
         ++num_virtual) {
      const ScheduleRequest request = {
          .num_ranks = num_ranks, .num_microbatches = num_microbatches, .num_virtual = num_virtual};
      all.push_back(make_schedule(entry.kind, request, {}));
    }
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
