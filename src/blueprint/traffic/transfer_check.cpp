#include "blueprint/traffic/transfer_check.h"

#include "blueprint/stage_units.h"
#include "schedule/event_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace echelon {
namespace {

std::string name_of_start(const MeshShape& mesh, int rank, const CommRecord& record) {
  const auto peer = [&] { return mesh.ranks_of(record.group, rank)[static_cast<std::size_t>(record.peer)]; };
  switch (record.kind) {
    case CommKind::send: return fmt::format("its send to rank {} over {}", peer(), name_of(record.group));
    case CommKind::receive: return fmt::format("its receive from rank {} over {}", peer(), name_of(record.group));
    default: return fmt::format("the {} over {}", name_of(record.kind), name_of(record.group));
  }
}

/// The graph of the starts and waits of a pass on all its ranks: a node for each event that is no operation.
class TransferGraph {
 public:
  TransferGraph(const MeshShape& mesh, const RankEvents& ranks) : mesh_(mesh) {
    for (const auto& [rank, events] : ranks) add_rank(rank, events);
    for (const auto& [name, starts] : starts_) match(starts);
  }

  [[nodiscard]] std::vector<std::string> faults() && {
    if (!faults_.empty()) return std::move(faults_);  // a cycle takes for granted that counterparts exist
    const std::vector<int> cycle = cycle_of(graph_, sorted_nodes(graph_));
    if (cycle.empty()) return {};
    std::string sentence = "deadlock: ";
    bool is_first = true;
    for (const int node : cycle) {
      const Node& at = nodes_[static_cast<std::size_t>(node)];
      if (!at.is_wait) continue;
      sentence += fmt::format("{}rank {} waits for {}", is_first ? "" : ", while ", at.rank,
                              name_of_start(mesh_, at.rank, *at.record));
      is_first = false;
    }
    return {sentence};
  }

 private:
  struct Node {
    int rank = 0;
    const CommRecord* record = nullptr;  // that starts, or is waited for
    bool is_wait = false;
  };
  struct Start {
    int node = 0, wait = -1;  // -1: nothing waits for it
  };
  /// The n-th collective of a group, by its first rank; or the n-th transfer from one rank to another.
  using Name = std::tuple<Group, int, int, int>;

  int add(Node node) {
    nodes_.push_back(node);
    graph_.before.emplace_back();
    return static_cast<int>(nodes_.size()) - 1;
  }

  void add_rank(int rank, const std::vector<TraceEvent>& events) {
    graph_.first_node.push_back(static_cast<int>(nodes_.size()));
    std::vector<std::pair<Name, std::size_t>> of_records;
    std::map<std::tuple<Group, int, int>, int> counts;
    std::map<Group, std::vector<int>> groups;
    const auto ranks_of = [&](const Group& group) -> const std::vector<int>& {
      const auto [known, is_new] = groups.try_emplace(group);
      if (is_new) known->second = mesh_.ranks_of(group, rank);
      return known->second;
    };
    int last = -1;
    const auto follow = [&](int node) {
      if (last >= 0) graph_.before[static_cast<std::size_t>(node)].push_back(last);
      last = node;
    };
    for (const TraceEvent& event : events) {
      if (const auto* record = std::get_if<CommRecord>(&event)) {
        const auto [from, to] = ends_of(rank, *record, ranks_of(record->group));
        const Name name = {record->group, from, to, counts[{record->group, from, to}]++};
        const int node = add({.rank = rank, .record = record});
        follow(node);
        std::vector<Start>& starts = starts_[name];
        of_records.emplace_back(name, starts.size());
        starts.push_back({.node = node});
      } else if (const auto* wait = std::get_if<CommWait>(&event)) {
        const auto& [name, which] = of_records[wait->start];
        Start& start = starts_[name][which];
        if (start.wait >= 0) continue;
        start.wait = add({rank, nodes_[static_cast<std::size_t>(start.node)].record, true});
        follow(start.wait);
      }
    }
  }

  [[nodiscard]] static std::pair<int, int> ends_of(int rank, const CommRecord& record, const std::vector<int>& ranks) {
    if (record.kind != CommKind::send && record.kind != CommKind::receive) return {ranks.front(), -1};
    const int peer = ranks[static_cast<std::size_t>(record.peer)];
    return record.kind == CommKind::send ? std::pair{rank, peer} : std::pair{peer, rank};
  }

  // Starts of one transfer, or of one collective on all its ranks.
  void match(const std::vector<Start>& starts) {
    const Node& first = node_of(starts.front());
    const bool is_transfer = first.record->kind == CommKind::send || first.record->kind == CommKind::receive;
    const std::size_t count = is_transfer ? 2 : static_cast<std::size_t>(first.record->group_size);
    if (starts.size() != count)
      return report(first, is_transfer ? "has no counterpart"
                                       : fmt::format("is entered by {} of {} ranks", starts.size(), count));
    for (const Start& start : starts) {
      const Node& node = node_of(start);
      if (start.wait < 0) report(node, "is waited for by nothing in the pass");
      if (!agrees(*node.record, *first.record))
        report(node, fmt::format("is {} elements of {}, but {} on rank {} is {}", node.record->num_elements,
                                 name_of(node.record->dtype), name_of_start(mesh_, first.rank, *first.record),
                                 first.rank, first.record->num_elements));
      for (const Start& other : starts)
        if (start.wait >= 0 && other.node != start.node)
          graph_.before[static_cast<std::size_t>(start.wait)].push_back(other.node);
    }
  }

  /// Exchanges of rows are of as many as each rank has.
  [[nodiscard]] static bool agrees(const CommRecord& a, const CommRecord& b) {
    const bool is_transfer = a.kind == CommKind::send || a.kind == CommKind::receive;
    const bool has_one_size = a.kind != CommKind::all_to_all && a.kind != CommKind::broadcast;
    return (is_transfer || a.kind == b.kind) &&
           (!has_one_size || (a.num_elements == b.num_elements && a.dtype == b.dtype));
  }
  [[nodiscard]] const Node& node_of(const Start& start) const { return nodes_[static_cast<std::size_t>(start.node)]; }
  void report(const Node& node, const std::string& what) {
    faults_.push_back(fmt::format("rank {}: {} {}", node.rank, name_of_start(mesh_, node.rank, *node.record), what));
  }

  const MeshShape& mesh_;
  EventGraph graph_;
  std::vector<Node> nodes_;
  std::map<Name, std::vector<Start>> starts_;
  std::vector<std::string> faults_;
};

/// The passes of a unit on a rank, and on all that it communicates with in them, directly or not.
std::map<int, PassTraces> passes_of_peers(const Blueprint& blueprint, const UnitKind& kind, int rank) {
  const UnitTraces units(blueprint.config());
  std::map<int, PassTraces> passes;
  std::vector<int> found = {rank};
  std::set<std::pair<Group, int>> known;  // by the first rank
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [of_rank, is_new] = passes.try_emplace(found[i]);
    if (!is_new) continue;
    of_rank->second = units.first_passes(kind, found[i]);
    std::set<Group> groups;
    for (const CallTrace& pass : of_rank->second)
      for (const TraceEvent& event : pass.events)
        if (const auto* record = std::get_if<CommRecord>(&event)) groups.insert(record->group);
    for (const Group& group : groups) {
      const std::vector<int> ranks = blueprint.mesh().ranks_of(group, found[i]);
      if (known.emplace(group, ranks.front()).second) found.insert(found.end(), ranks.begin(), ranks.end());
    }
  }
  return passes;
}

constexpr std::array actions_of_passes = {ActionKind::forward, ActionKind::backward, ActionKind::backward_input,
                                          ActionKind::backward_weight};  // by PassKind

}  // namespace

std::vector<std::string> check_transfers(const MeshShape& mesh, const RankEvents& ranks) {
  return TransferGraph(mesh, ranks).faults();
}

std::vector<std::string> check_transfers(const Blueprint& blueprint) {
  std::vector<std::string> faults;
  std::set<UnitKind> known;
  const std::vector<int>& rank_of_stage = blueprint.schedule().rank_of_stage;
  const RunConfig& config = blueprint.config();
  const std::vector<StageLayers> layout =
      stage_layout(config.model.num_hidden_layers, static_cast<int>(rank_of_stage.size()),
                   config.parallelism.pipeline_parallel_layout);
  const Recompute recompute = layer_options(config, 0).recompute;
  const std::vector<StageUnits> stages =
      units_of(layout, config.model, recompute, tied_weight_of(config.model, rank_of_stage));
  for (int stage = 0; stage < static_cast<int>(stages.size()); ++stage) {
    Coordinates first{};
    first[static_cast<std::size_t>(Axis::pp)] = rank_of_stage[static_cast<std::size_t>(stage)];
    int unit = 0;
    for (const auto& [kind, count] : stages[static_cast<std::size_t>(stage)].runs) {
      if (known.insert(kind).second) {
        const auto passes = passes_of_peers(blueprint, kind, blueprint.mesh().rank_of(first));
        for (std::size_t pass = 0; pass < actions_of_passes.size(); ++pass) {
          RankEvents events;
          for (const auto& [rank, of_rank] : passes) events[rank] = of_rank[pass].events;
          const Action action = {.kind = actions_of_passes[pass], .stage = stage, .microbatch = 0, .unit = unit};
          for (const std::string& fault : check_transfers(blueprint.mesh(), events))
            faults.push_back(fmt::format("{}: {}", to_string(action), fault));
        }
      }
      unit += static_cast<int>(count);
    }
  }
  return faults;
}

}  // namespace echelon
