// The words for actions, in sentences and in drawings.
#include "schedule/action.h"

#include <fmt/format.h>

namespace echelon {

std::string_view name_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::load_batch: return "load_batch";
    case ActionKind::take_snapshot: return "take_snapshot";
    case ActionKind::clear_gradients: return "clear_gradients";
    case ActionKind::count_tokens: return "count_tokens";
    case ActionKind::receive_forward: return "receive_forward";
    case ActionKind::forward: return "forward";
    case ActionKind::send_forward: return "send_forward";
    case ActionKind::receive_backward: return "receive_backward";
    case ActionKind::backward: return "backward";
    case ActionKind::backward_input: return "backward_input";
    case ActionKind::backward_weight: return "backward_weight";
    case ActionKind::send_backward: return "send_backward";
    case ActionKind::open_gradients: return "open_gradients";
    case ActionKind::reduce_gradients: return "reduce_gradients";
    case ActionKind::store_gradients: return "store_gradients";
    case ActionKind::reduce_parts: return "reduce_parts";
    case ActionKind::sum_replicas: return "sum_replicas";
    case ActionKind::sum_tied: return "sum_tied";
    case ActionKind::clip: return "clip";
    case ActionKind::update: return "update";
    case ActionKind::gather_parameters: return "gather_parameters";
    case ActionKind::release_parameters: return "release_parameters";
    case ActionKind::report: return "report";
  }
  return "unknown";
}

bool is_compute(ActionKind kind) {
  return kind == ActionKind::forward || kind == ActionKind::backward || kind == ActionKind::backward_input ||
         kind == ActionKind::backward_weight;
}

std::string to_string(const Action& action) {
  std::string text(name_of(action.kind));
  if (action.stage >= 0) text += fmt::format(" stage {}", action.stage);
  if (action.microbatch >= 0) text += fmt::format(" microbatch {}", action.microbatch);
  if (action.unit != whole_stage) text += fmt::format(" unit {}", action.unit);
  return text;
}

}  // namespace echelon
