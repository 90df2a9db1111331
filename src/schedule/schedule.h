// Pipeline schedules: pure functions of a few integers that return the compute actions of every pipeline rank, in order.
#pragma once

#include "schedule/action.h"

#include <vector>

namespace echelon {

/// The compute actions (kind, stage, microbatch) of one pipeline rank, in order; ids and edges are added by lowering.
using ComputeOrder = std::vector<Action>;

/// One order per pipeline rank. Stage s lies on rank s % num_ranks (one stage a rank so far).
struct Schedule {
  std::vector<ComputeOrder> ranks;
  int num_stages = 0;
  int num_microbatches = 0;
};

/// One microbatch after the other: the baseline without overlap between stages.
[[nodiscard]] Schedule naive_schedule(int num_stages, int num_microbatches);
/// GPipe (Huang et al. 2019): all forwards, then all backwards.
[[nodiscard]] Schedule gpipe_schedule(int num_stages, int num_microbatches);
/// 1F1B / PipeDream-flush (Narayanan et al. 2021, fig. 4).
[[nodiscard]] Schedule one_f_one_b_schedule(int num_stages, int num_microbatches);

}  // namespace echelon
