// The actions of one microbatch in one stage of a rank's program, which start and end the lifetimes of its buffers.
#pragma once

#include "schedule/action.h"

#include <map>
#include <utility>
#include <vector>

namespace echelon {

/// Ids of the actions of one microbatch in one stage.
struct MicrobatchActions {
  static constexpr int never = -1;

  // Of passes by units, the first or the last.
  int first_forward = never, forward = never, first_backward = never, last_input = never, last = never;
  int receive_forward = never, send_forward = never, receive_backward = never, send_backward = never;
  bool is_split = false;  // backward_input and backward_weight
};

/// By stage and microbatch.
using MicrobatchActionsMap = std::map<std::pair<int, int>, MicrobatchActions>;
[[nodiscard]] MicrobatchActionsMap microbatch_actions_of(const Program& program);

/// By id: the first action that waits for it; until its end the memory that it reads is in use. Without one, the
/// program's last.
[[nodiscard]] std::vector<int> released_at(const Program& program);

}  // namespace echelon
