#include "schedule/lowering/passage.h"

namespace echelon {
namespace {

void add(const Action& action, Passage& passage) {
  switch (action.kind) {
    case ActionKind::receive_forward: passage.receive_forward = action.id; return;
    case ActionKind::send_forward: passage.send_forward = action.id; return;
    case ActionKind::receive_backward: passage.receive_backward = action.id; return;
    case ActionKind::send_backward: passage.send_backward = action.id; return;
    case ActionKind::forward:
      if (passage.first_forward == Passage::never) passage.first_forward = action.id;
      passage.forward = passage.last = action.id;
      return;
    case ActionKind::backward_input: passage.is_split = true; [[fallthrough]];
    case ActionKind::backward:
      if (passage.first_backward == Passage::never) passage.first_backward = action.id;
      passage.last_input = passage.last = action.id;
      return;
    case ActionKind::backward_weight: passage.last = action.id; return;
    case ActionKind::load_batch:
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

Passages passages_of(const Program& program) {
  Passages passages;
  for (const Action& action : program)
    if (action.microbatch >= 0) add(action, passages[{action.stage, action.microbatch}]);
  return passages;
}

std::vector<int> released_at(const Program& program) {
  std::vector<int> released(program.size(), static_cast<int>(program.size()) - 1);
  for (auto action = program.rbegin(); action != program.rend(); ++action)
    for (const int id : action->after) released[static_cast<std::size_t>(id)] = action->id;
  return released;
}

}  // namespace echelon
