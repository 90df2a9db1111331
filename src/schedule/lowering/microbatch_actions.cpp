#include "schedule/lowering/microbatch_actions.h"

namespace echelon {
namespace {

void add(const Action& action, MicrobatchActions& of) {
  switch (action.kind) {
    case ActionKind::receive_forward: of.receive_forward = action.id; return;
    case ActionKind::send_forward: of.send_forward = action.id; return;
    case ActionKind::receive_backward: of.receive_backward = action.id; return;
    case ActionKind::send_backward: of.send_backward = action.id; return;
    case ActionKind::forward:
      if (of.first_forward == MicrobatchActions::never) of.first_forward = action.id;
      of.forward = of.last = action.id;
      return;
    case ActionKind::backward_input: of.is_split = true; [[fallthrough]];
    case ActionKind::backward:
      if (of.first_backward == MicrobatchActions::never) of.first_backward = action.id;
      of.last_input = of.last = action.id;
      return;
    case ActionKind::backward_weight: of.last = action.id; return;
    case ActionKind::load_batch:
    case ActionKind::take_snapshot:
    case ActionKind::clear_gradients:
    case ActionKind::count_tokens:
    case ActionKind::open_gradients:
    case ActionKind::reduce_gradients:
    case ActionKind::store_gradients:
    case ActionKind::reduce_parts:
    case ActionKind::sum_replicas:
    case ActionKind::sum_tied:
    case ActionKind::clip:
    case ActionKind::update:
    case ActionKind::gather_parameters:
    case ActionKind::release_parameters:
    case ActionKind::report: return;
  }
}

}  // namespace

MicrobatchActionsMap microbatch_actions_of(const Program& program) {
  MicrobatchActionsMap all;
  for (const Action& action : program)
    if (action.microbatch >= 0) add(action, all[{action.stage, action.microbatch}]);
  return all;
}

std::vector<int> released_at(const Program& program) {
  std::vector<int> released(program.size(), static_cast<int>(program.size()) - 1);
  for (auto action = program.rbegin(); action != program.rend(); ++action)
    for (const int id : action->after) released[static_cast<std::size_t>(id)] = action->id;
  return released;
}

}  // namespace echelon
