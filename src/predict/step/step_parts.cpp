#include "predict/step/step_parts.h"

#include "schedule/timeline.h"
#include "spec/groups.h"

#include <algorithm>
#include <tuple>

namespace echelon {
namespace {

enum class Doing : std::uint8_t { computing, collective, transfer, waiting };

/// Something starts (+1) or ends (-1).
struct Change {
  double time = 0;
  int step = 0;
  Doing doing{};
  int action = 0;
  bool operator<(const Change& other) const {
    return std::tie(time, step, action) < std::tie(other.time, other.step, other.action);
  }
};

std::vector<Change> changes_of(const RankTimes& rank, const std::vector<ActionTimes>& events,
                               const std::vector<double>& waits_since) {
  std::vector<Change> changes;
  const auto add = [&](Doing doing, int action, double begin, double end) {
    if (end <= begin) return;
    changes.push_back({begin, 1, doing, action});
    changes.push_back({end, -1, doing, action});
  };
  for (int action = 0; action < static_cast<int>(events.size()); ++action) {
    const auto at = static_cast<std::size_t>(action);
    const int lane = rank.work->works[at].lane;
    add(lane == compute_lane      ? Doing::computing
        : lane == collective_lane ? Doing::collective
                                  : Doing::transfer,
        action, events[at].begin, events[at].end);
    add(Doing::waiting, action, waits_since[at], events[at].begin);
  }
  std::sort(changes.begin(), changes.end());
  return changes;
}

double& part_of(StepParts& parts, ActionKind kind) {
  if (is_compute(kind)) return parts.compute_seconds;
  return kind == ActionKind::update || kind == ActionKind::clip ? parts.optimizer_seconds : parts.other_seconds;
}

/// `seconds` of an action, divided as its own time is.
void add_action(StepParts& parts, const RankTimes& rank, int action, double seconds) {
  const auto at = static_cast<std::size_t>(action);
  const ActionTime& time = *rank.times[at];
  const ActionKind kind = (*rank.work->program)[at].kind;
  const double sent = time.communicated_seconds(), exposed = time.exposed_seconds(), total = time.seconds;
  if (total <= 0) {
    part_of(parts, kind) += seconds;
    return;
  }
  part_of(parts, kind) += seconds * time.compute_seconds / total;
  for (const auto& [group, of_group] : time.communication_seconds)
    if (sent > 0) parts.exposed_communication_seconds[name_of(group)] += seconds * exposed / total * of_group / sent;
}

/// What is under way at a moment.
struct Now {
  int computing = -1, collective = -1;
  int num_transfers = 0, num_waiting = 0;

  void apply(const Change& change) {
    switch (change.doing) {
      case Doing::computing: computing = change.step > 0 ? change.action : -1; return;
      case Doing::collective: collective = change.step > 0 ? change.action : -1; return;
      case Doing::transfer: num_transfers += change.step; return;
      case Doing::waiting: num_waiting += change.step; return;
    }
  }

  void attribute(StepParts& parts, const RankTimes& rank, const std::vector<ActionTimes>& events,
                 double seconds) const {
    if (computing >= 0) {
      const ActionTimes& at = events[static_cast<std::size_t>(computing)];
      const double of_host = seconds * at.host_seconds / (at.end - at.begin);
      parts.host_seconds += of_host;
      add_action(parts, rank, computing, seconds - of_host);
    } else if (collective >= 0)
      add_action(parts, rank, collective, seconds);
    else if (num_transfers > 0)
      parts.exposed_communication_seconds[name_of(pipeline_group)] += seconds;
    else
      (num_waiting > 0 ? parts.waiting_seconds : parts.bubble_seconds) += seconds;
  }
};

}  // namespace

double StepParts::total_seconds() const {
  double sum = compute_seconds + bubble_seconds + waiting_seconds + optimizer_seconds + other_seconds + host_seconds;
  for (const auto& [name, seconds] : exposed_communication_seconds) sum += seconds;
  return sum;
}

StepParts& StepParts::operator+=(const StepParts& other) {
  compute_seconds += other.compute_seconds;
  bubble_seconds += other.bubble_seconds;
  waiting_seconds += other.waiting_seconds;
  optimizer_seconds += other.optimizer_seconds;
  other_seconds += other.other_seconds;
  host_seconds += other.host_seconds;
  for (const auto& [name, seconds] : other.exposed_communication_seconds)
    exposed_communication_seconds[name] += seconds;
  return *this;
}

StepParts& StepParts::operator*=(double factor) {
  for (double* part :
       {&compute_seconds, &bubble_seconds, &waiting_seconds, &optimizer_seconds, &other_seconds, &host_seconds})
    *part *= factor;
  for (auto& [name, seconds] : exposed_communication_seconds) seconds *= factor;
  return *this;
}

std::vector<std::vector<double>> waits_for_replicas_since(const StepWork& step, const StepEvents& events,
                                                          int num_stages) {
  std::vector<std::map<int, double>> last(step.rendezvous_sizes.size());  // of each rendezvous and replica
  const auto for_rendezvous = [&](const auto& f) {
    for (std::size_t rank = 0; rank < step.ranks.size(); ++rank)
      for (std::size_t action = 0; action < step.ranks[rank].works.size(); ++action)
        if (const int rendezvous = step.ranks[rank].works[action].rendezvous; rendezvous != no_rendezvous)
          f(rank, action, last[static_cast<std::size_t>(rendezvous)], static_cast<int>(rank) / num_stages);
  };
  for_rendezvous([&](std::size_t rank, std::size_t action, std::map<int, double>& of, int replica) {
    double& ready = of.try_emplace(replica, 0).first->second;
    ready = std::max(ready, events.ranks[rank][action].ready);
  });
  std::vector<std::vector<double>> since;
  for (const RankWork& rank : step.ranks) since.emplace_back(rank.works.size(), no_time);
  for_rendezvous([&](std::size_t rank, std::size_t action, const std::map<int, double>& of, int replica) {
    if (of.size() > 1) since[rank][action] = of.at(replica);
  });
  return since;
}

StepParts parts_of(const RankTimes& rank, const std::vector<ActionTimes>& events,
                   const std::vector<double>& waits_since, double step_seconds) {
  StepParts parts;
  Now now;
  double time = 0;
  for (const Change& change : changes_of(rank, events, waits_since)) {
    if (change.time > time) now.attribute(parts, rank, events, change.time - time);
    time = std::max(time, change.time);
    now.apply(change);
  }
  if (step_seconds > time) now.attribute(parts, rank, events, step_seconds - time);
  return parts;
}

}  // namespace echelon
