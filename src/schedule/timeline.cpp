#include "schedule/timeline.h"

#include "base/error.h"
#include "schedule/event_graph.h"

#include <algorithm>
#include <limits>

namespace echelon {

Lane lane_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::load_batch:
    case ActionKind::take_snapshot:
    case ActionKind::clear_gradients:
    case ActionKind::forward:
    case ActionKind::backward:
    case ActionKind::backward_input:
    case ActionKind::backward_weight:
    case ActionKind::open_gradients:
    case ActionKind::store_gradients:
    case ActionKind::update:
    case ActionKind::release_parameters: return Lane::compute;
    case ActionKind::receive_forward:
    case ActionKind::send_forward:
    case ActionKind::receive_backward:
    case ActionKind::send_backward: return Lane::transfer;
    case ActionKind::count_tokens:
    case ActionKind::reduce_gradients:
    case ActionKind::reduce_parts:
    case ActionKind::sum_replicas:
    case ActionKind::sum_tied:
    case ActionKind::clip:
    case ActionKind::gather_parameters:
    case ActionKind::report: return Lane::collective;
  }
  return Lane::compute;
}

void add_exchange(std::vector<ExchangeEvent>& exchanges, const ExchangeEvent& next) {
  if (!exchanges.empty()) {
    ExchangeEvent& last = exchanges.back();
    const bool continues =
        last.rank == next.rank && last.action_id == next.action_id && last.name == next.name && next.start <= last.end;
    if (continues) {
      last.start = std::min(last.start, next.start);
      last.end = std::max(last.end, next.end);
      return;
    }
  }
  exchanges.push_back(next);
}

Cost cost_of(const StageCosts& costs) {
  return [costs](int, const Action& action) {
    if (action.kind == ActionKind::forward)
      return action.unit == whole_stage ? costs.forward : costs.forward / costs.num_units;
    if (action.kind == ActionKind::backward)
      return action.unit == whole_stage ? costs.backward : costs.backward / costs.num_units;
    return is_transfer(action.kind) ? costs.transfer : 0.0;
  };
}

Timeline simulate_programs(const std::vector<Program>& programs, const Cost& cost) {
  const EventGraph graph = event_graph(programs);
  const std::vector<int> sorted = sorted_nodes(graph);
  if (sorted.size() != graph.before.size())
    throw Failure("programs that deadlock have no timeline; `check` names the cycle");

  std::vector<double> duration(graph.before.size(), 0), time(graph.before.size(), 0);
  for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
    for (const Action& action : programs[rank]) duration[graph.end(rank, action.id)] = cost(rank, action);
  }
  for (const int node : sorted) {
    for (const int before : graph.before[node]) time[node] = std::max(time[node], time[before]);
    time[node] += duration[node];
  }
  Timeline timeline;
  for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
    for (const Action& action : programs[rank])
      timeline.events.push_back({rank, action.id, lane_of(action.kind), time[graph.start(rank, action.id)],
                                 time[graph.end(rank, action.id)]});
  }
  return timeline;
}

double bubble(const Timeline& timeline, const std::vector<Program>& programs) {
  double first = std::numeric_limits<double>::infinity(), last = -first, busy = 0;
  for (const Event& event : timeline.events) {
    if (!is_compute(programs[event.rank][event.action_id].kind)) continue;
    first = std::min(first, event.start);
    last = std::max(last, event.end);
    busy += event.end - event.start;
  }
  const double available = (last - first) * static_cast<double>(programs.size());
  return available > 0 ? (available - busy) / available : 0;
}

}  // namespace echelon
