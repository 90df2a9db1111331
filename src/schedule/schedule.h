// Pipeline schedules: pure functions of a few integers that return the compute actions of every pipeline rank, in
// order. One page each.
#pragma once

#include "schedule/action.h"

#include <vector>

namespace echelon {

/// The compute actions (kind, stage, microbatch) of one pipeline rank, in order; ids and edges are added by lowering.
using ComputeOrder = std::vector<Action>;

/// One order per pipeline rank. Stages are virtual stages, in the order in which a microbatch passes them; a rank may
/// hold several.
struct Schedule {
  std::vector<ComputeOrder> ranks;
  int num_stages = 0;
  int num_microbatches = 0;
  std::vector<int> rank_of_stage;  // the placement

  [[nodiscard]] std::vector<int> stages_of(int rank) const;  // ascending
  void add(ActionKind kind, int stage, int microbatch);      // at the end of what the stage's rank does
};

/// A schedule without actions. In a loop: stage s is on rank s % num_ranks.
[[nodiscard]] Schedule empty_loop_schedule(int num_ranks, int num_stages, int num_microbatches);
/// In a V: the first half of 2 * num_ranks stages goes down the ranks, the second half up again, so that the first rank
/// holds both ends.
[[nodiscard]] Schedule empty_v_schedule(int num_ranks, int num_microbatches);

/// One microbatch after the other: the baseline without overlap between stages.
[[nodiscard]] Schedule naive_schedule(int num_ranks, int num_microbatches);
/// GPipe (Huang et al. 2019): all forwards, then all backwards.
[[nodiscard]] Schedule gpipe_schedule(int num_ranks, int num_microbatches);
/// 1F1B / PipeDream-flush (Narayanan et al. 2021, fig. 4 top).
[[nodiscard]] Schedule one_f_one_b_schedule(int num_ranks, int num_microbatches);
/// Interleaved 1F1B (Narayanan et al. 2021, fig. 4 bottom): each rank holds `num_virtual` stages.
[[nodiscard]] Schedule interleaved_one_f_one_b_schedule(int num_ranks, int num_microbatches, int num_virtual);
/// ZB-H1 (Qi et al. 2023, fig. 3 top): 1F1B with weight gradients deferred until they fill its bubble, in the memory of
/// 1F1B.
[[nodiscard]] Schedule zb_h1_schedule(int num_ranks, int num_microbatches);
/// ZB-H2 (Qi et al. 2023, fig. 3 bottom): no bubble if all passes take equally long, in twice the memory.
[[nodiscard]] Schedule zb_h2_schedule(int num_ranks, int num_microbatches);
/// Interleaved 1F1B with weight gradients deferred as in ZB-H1.
[[nodiscard]] Schedule interleaved_zero_bubble_schedule(int num_ranks, int num_microbatches, int num_virtual);
/// Looped breadth-first (Lamy-Poirier 2022, arXiv:2211.05953): all microbatches through one of the rank's stages, then
/// all through the next.
[[nodiscard]] Schedule looped_bfs_schedule(int num_ranks, int num_microbatches, int num_virtual);
/// ZB-V (Qi et al. 2024, arXiv:2405.15362): two stages a rank in a V; no bubble if all passes take equally long, in the
/// memory of 1F1B.
[[nodiscard]] Schedule zb_v_schedule(int num_ranks, int num_microbatches);
/// DualPipeV: two stages a rank in a V, a forward of one paired with a backward of the other. At least 2 num_ranks
/// microbatches.
[[nodiscard]] Schedule dualpipe_v_schedule(int num_ranks, int num_microbatches);

}  // namespace echelon
