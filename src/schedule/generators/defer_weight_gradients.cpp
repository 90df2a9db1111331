#include "schedule/generators/defer_weight_gradients.h"

#include <deque>

namespace echelon {

ComputeOrder defer_weight_gradients(const ComputeOrder& order, int delay) {
  ComputeOrder split;
  std::deque<Action> waiting;
  const auto run_oldest = [&] {
    split.push_back(waiting.front());
    waiting.pop_front();
  };
  for (Action action : order) {
    if (action.kind != ActionKind::backward) {
      split.push_back(action);
      continue;
    }
    action.kind = ActionKind::backward_input;
    split.push_back(action);
    action.kind = ActionKind::backward_weight;
    waiting.push_back(action);
    if (static_cast<int>(waiting.size()) > delay) run_oldest();
  }
  while (!waiting.empty()) run_oldest();
  return split;
}

}  // namespace echelon
