#include "schedule/event_graph.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace echelon {
namespace {

// What actions of several ranks are matched by: a message, named by its receive (kind, stage, microbatch), or the n-th
// collective of a kind.
using MatchKey = std::tuple<ActionKind, int, int>;

MatchKey match_key(const Action& action, std::map<ActionKind, int>& num_collectives) {
  switch (action.kind) {
    case ActionKind::send_forward: return {ActionKind::receive_forward, action.stage + 1, action.microbatch};
    case ActionKind::send_backward: return {ActionKind::receive_backward, action.stage - 1, action.microbatch};
    case ActionKind::receive_forward:
    case ActionKind::receive_backward: return {action.kind, action.stage, action.microbatch};
    case ActionKind::sum_tied:
    case ActionKind::clip:
    case ActionKind::report: return {action.kind, num_collectives[action.kind]++, 0};
    case ActionKind::load_batch:
    case ActionKind::take_snapshot:
    case ActionKind::clear_gradients:
    case ActionKind::count_tokens:
    case ActionKind::forward:
    case ActionKind::backward:
    case ActionKind::backward_input:
    case ActionKind::backward_weight:
    case ActionKind::open_gradients:
    case ActionKind::reduce_gradients:
    case ActionKind::store_gradients:
    case ActionKind::reduce_parts:
    case ActionKind::sum_replicas:
    case ActionKind::update:
    case ActionKind::gather_parameters:
    case ActionKind::release_parameters: break;
  }
  return {ActionKind::load_batch, -1, -1};
}

}  // namespace

EventGraph event_graph(const std::vector<Program>& programs) {
  EventGraph graph;
  int num_nodes = 0;
  for (const Program& program : programs) {
    graph.first_node.push_back(num_nodes);
    num_nodes += 2 * static_cast<int>(program.size());
  }
  graph.before.resize(num_nodes);

  std::map<MatchKey, std::vector<int>> starts;
  for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
    std::map<ActionKind, int> num_collectives;
    for (const Action& action : programs[rank]) {
      auto& before_start = graph.before[graph.start(rank, action.id)];
      if (action.id > 0) before_start.push_back(graph.start(rank, action.id - 1));
      if (action.id > 0 && is_compute(programs[rank][action.id - 1].kind))
        before_start.push_back(graph.end(rank, action.id - 1));
      for (const int id : action.after) before_start.push_back(graph.end(rank, id));
      graph.before[graph.end(rank, action.id)].push_back(graph.start(rank, action.id));
      const MatchKey key = match_key(action, num_collectives);
      if (std::get<1>(key) >= 0) starts[key].push_back(graph.start(rank, action.id));
    }
  }
  for (const auto& [key, nodes] : starts) {
    for (const int end_of : nodes) {
      for (const int start : nodes) {
        if (start != end_of) graph.before[end_of + 1].push_back(start);
      }
    }
  }
  return graph;
}

std::vector<int> sorted_nodes(const EventGraph& graph) {
  const int num_nodes = static_cast<int>(graph.before.size());
  std::vector<std::vector<int>> behind(num_nodes);
  std::vector<int> num_awaited(num_nodes), sorted;
  for (int node = 0; node < num_nodes; ++node) {
    for (const int before : graph.before[node]) behind[before].push_back(node);
    num_awaited[node] = static_cast<int>(graph.before[node].size());
    if (num_awaited[node] == 0) sorted.push_back(node);
  }
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    for (const int node : behind[sorted[i]]) {
      if (--num_awaited[node] == 0) sorted.push_back(node);
    }
  }
  return sorted;
}

std::vector<int> cycle_of(const EventGraph& graph, const std::vector<int>& sorted) {
  if (sorted.size() == graph.before.size()) return {};
  std::vector<bool> is_sorted(graph.before.size(), false);
  for (const int node : sorted) is_sorted[node] = true;
  int node = static_cast<int>(std::find(is_sorted.begin(), is_sorted.end(), false) - is_sorted.begin());
  std::vector<int> path;
  while (std::find(path.begin(), path.end(), node) == path.end()) {
    path.push_back(node);
    const auto& before = graph.before[node];
    node = *std::find_if(before.begin(), before.end(), [&](int other) { return !is_sorted[other]; });
  }
  path.erase(path.begin(), std::find(path.begin(), path.end(), node));
  return path;
}

bool crosses_ranks(ActionKind kind) {
  return kind == ActionKind::sum_tied || kind == ActionKind::clip || kind == ActionKind::report;
}

}  // namespace echelon
