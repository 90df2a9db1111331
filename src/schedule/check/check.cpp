// Proves that programs follow their schedule and terminate. It checks the program of each rank, then what must agree
// between ranks, then the whole graph.
#include "base/error.h"
#include "schedule/check/check_edges.h"
#include "schedule/check/check_parameters.h"
#include "schedule/event_graph.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace echelon {
namespace {

using Kind = ActionKind;
using Programs = std::vector<Program>;
using Faults = std::vector<std::string>;
using Place = std::tuple<Kind, int, int, int>;
Place place_of(const Action& action) { return {action.kind, action.stage, action.microbatch, action.unit}; }

void check_ids(int rank, const Program& program, Faults& faults) {
  const int num_actions = static_cast<int>(program.size());
  for (int position = 0; position < num_actions; ++position) {
    const Action& action = program[position];
    if (action.id != position)
      faults.push_back(
          fmt::format("rank {}: {} has id {} at position {}", rank, to_string(action), action.id, position));
    for (const int id : action.after) {
      if (id < 0 || id >= num_actions)
        faults.push_back(fmt::format("rank {}: {} waits for id {}, which no action has", rank, to_string(action), id));
    }
    if (!std::is_sorted(action.after.begin(), action.after.end()))
      faults.push_back(fmt::format("rank {}: {} lists its edges in no order", rank, to_string(action)));
  }
}

// Each microbatch passes each stage once, and so for everything else that a step must do.
void check_counts(int rank, const Program& program, const std::vector<Action>& expected, bool shards_parameters,
                  Faults& faults) {
  std::map<Place, int> num_found;
  for (const Action& action : program) {
    // Checked by check_parameters.
    const bool comes_often = action.kind == Kind::gather_parameters || action.kind == Kind::release_parameters;
    if (!shards_parameters || !comes_often) ++num_found[place_of(action)];
  }
  for (const Action& action : expected) {
    const int count = std::exchange(num_found[place_of(action)], 0);
    if (count != 1)
      faults.push_back(fmt::format("rank {}: {} occurs {} times instead of once", rank, to_string(action), count));
  }
  for (const Action& action : program) {
    if (std::exchange(num_found[place_of(action)], 0) > 0)
      faults.push_back(fmt::format("rank {}: {} does not belong here", rank, to_string(action)));
  }
}

// The program computes in the order of its schedule; the units of one backward count as that backward.
void check_compute_order(int rank, const Program& program, const ComputeOrder& order, bool trains, Faults& faults) {
  std::vector<Action> scheduled, computed;
  for (const Action& action : order) {
    if (trains || action.kind == Kind::forward)
      scheduled.push_back({.kind = action.kind, .stage = action.stage, .microbatch = action.microbatch});
  }
  for (const Action& action : program) {
    const Action whole{.kind = action.kind, .stage = action.stage, .microbatch = action.microbatch};
    if (is_compute(action.kind) && (computed.empty() || computed.back() != whole)) computed.push_back(whole);
  }
  const auto [found, wanted] = std::mismatch(computed.begin(), computed.end(), scheduled.begin(), scheduled.end());
  if (found == computed.end() && wanted == scheduled.end()) return;
  faults.push_back(fmt::format("rank {}: {} runs where the schedule has {}", rank,
                               found == computed.end() ? "nothing" : to_string(*found),
                               wanted == scheduled.end() ? "nothing" : to_string(*wanted)));
}

// What flows from one rank to another, in order; a message is named by its receive.
using Channels = std::map<std::pair<int, int>, std::vector<Action>>;

Channels channels(const Programs& programs, const Schedule& schedule, bool of_senders) {
  const int num_ranks = static_cast<int>(programs.size());
  const auto rank_of = [&](int stage) {
    return stage >= 0 && stage < schedule.num_stages ? schedule.rank_of_stage[stage] : -1;
  };
  Channels messages;
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (const Action& action : programs[rank]) {
      if (!is_transfer(action.kind) || is_send(action.kind) != of_senders) continue;
      const bool is_forward = is_forward_transfer(action.kind);
      const int behind = is_forward ? 1 : -1;
      const int stage = of_senders ? action.stage + behind : action.stage;  // where the message is received
      messages[{rank_of(stage - behind), rank_of(stage)}].push_back(
          {.kind = is_forward ? Kind::receive_forward : Kind::receive_backward,
           .stage = stage,
           .microbatch = action.microbatch});
    }
  }
  return messages;
}

void check_messages(const Programs& programs, const Schedule& schedule, Faults& faults) {
  Channels sent = channels(programs, schedule, true), received = channels(programs, schedule, false);
  for (const auto& [channel, messages] : sent) received.try_emplace(channel);
  for (const auto& [channel, posted] : received) {
    const auto& messages = sent[channel];
    const auto [message, receive] = std::mismatch(messages.begin(), messages.end(), posted.begin(), posted.end());
    if (message == messages.end() && receive == posted.end()) continue;
    faults.push_back(fmt::format("message {} from rank {} to rank {} is sent for {}, but rank {} posts {}",
                                 message - messages.begin(), channel.first, channel.second,
                                 message == messages.end() ? "nobody" : to_string(*message), channel.second,
                                 receive == posted.end() ? "no receive for it" : to_string(*receive)));
  }
}

std::vector<Kind> collectives(const Program& program, bool with_tied) {
  std::vector<Kind> kinds;
  for (const Action& action : program) {
    if (crosses_ranks(action.kind) && (with_tied || action.kind != Kind::sum_tied)) kinds.push_back(action.kind);
  }
  return kinds;
}

// Of the collectives only the tied sum has fewer members than the pipeline has ranks: the two ends.
void check_collectives(const Programs& programs, Faults& faults) {
  for (std::size_t rank = 1; rank < programs.size(); ++rank) {
    const bool both_ends = rank + 1 == programs.size();
    const auto ours = collectives(programs[rank], both_ends), first = collectives(programs[0], both_ends);
    const auto [mine, theirs] = std::mismatch(ours.begin(), ours.end(), first.begin(), first.end());
    if (mine == ours.end() && theirs == first.end()) continue;
    faults.push_back(fmt::format("rank {} enters {} where rank 0 enters {}", rank,
                                 mine == ours.end() ? "no collective" : name_of(*mine),
                                 theirs == first.end() ? "no collective" : name_of(*theirs)));
  }
}

void check_deadlock(const Programs& programs, Faults& faults) {
  const EventGraph graph = event_graph(programs);
  const std::vector<int> cycle = cycle_of(graph, sorted_nodes(graph));
  if (cycle.empty()) return;
  // (rank, id) around the cycle; of a run along one program only the two ends.
  std::vector<std::pair<int, int>> actions;
  for (const int node : cycle) {
    const auto behind = std::upper_bound(graph.first_node.begin(), graph.first_node.end(), node);
    const int rank = static_cast<int>(behind - graph.first_node.begin()) - 1;
    const std::pair<int, int> action{rank, (node - graph.first_node[rank]) / 2};
    const std::size_t count = actions.size();
    if (count > 0 && actions.back() == action) continue;
    if (count > 1 && actions[count - 1].first == rank && actions[count - 2].first == rank) actions.pop_back();
    actions.push_back(action);
  }
  std::string sentence = "deadlock: ";
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const auto [rank, id] = actions[i];
    sentence += fmt::format("rank {} {}{} waits for ", rank, to_string(programs[rank][id]), i == 0 ? "" : ", which");
  }
  faults.push_back(sentence + "the first of these");
}

}  // namespace

std::vector<std::string> check(const Programs& programs, const Schedule& schedule, const LoweringOptions& options) {
  Faults faults;
  if (programs.size() != schedule.ranks.size())
    return {fmt::format("there are {} programs for {} pipeline ranks", programs.size(), schedule.ranks.size())};
  const int num_ranks = static_cast<int>(programs.size());
  for (int rank = 0; rank < num_ranks; ++rank) {
    check_ids(rank, programs[rank], faults);
    check_counts(rank, programs[rank], expected_actions(rank, schedule, options), options.shards_parameters, faults);
    check_compute_order(rank, programs[rank], schedule.ranks[rank], options.trains, faults);
  }
  check_messages(programs, schedule, faults);
  check_collectives(programs, faults);
  if (!faults.empty()) return faults;  // what follows takes all of the above for granted

  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto missing = check_edges(rank, programs[rank], schedule, options);
    faults.insert(faults.end(), missing.begin(), missing.end());
    const auto unready = check_parameters(rank, programs[rank], options);
    faults.insert(faults.end(), unready.begin(), unready.end());
  }
  check_deadlock(programs, faults);
  return faults;
}

}  // namespace echelon
