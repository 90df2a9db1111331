// Schedules in the CSV files of PyTorch's pipelines: a row per rank, a cell per action, "2F0" the forward of stage 2 on
// microbatch 0.
#pragma once

#include "schedule/schedule.h"

#include <string>
#include <string_view>

namespace echelon {

/// F forward, B backward, I backward of the input, W backward of the weights; "(2F1;3B0)OVERLAP_F_B" is both, one after
/// the other. Empty cells are bubbles. Messages, gathering and reduction (SEND_F, RECV_F, SEND_B, RECV_B, WAIT_SEND_F,
/// WAIT_SEND_B, UNSHARD, RESHARD, REDUCE_GRAD, WAIT_REDUCE_GRAD) are skipped, since lowering adds its own. The row of a
/// stage is the rank that holds it. Throws Error naming the cell, or the pass that is missing, is repeated, or can
/// never start.
[[nodiscard]] Schedule read_torch_csv(std::string_view text, const std::string& file);

/// The same text for a schedule, without bubbles.
[[nodiscard]] std::string to_torch_csv(const Schedule& schedule);

}  // namespace echelon
