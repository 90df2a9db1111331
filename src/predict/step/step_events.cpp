#include "predict/step/step_events.h"

#include "base/error.h"

#include <algorithm>
#include <deque>
#include <queue>
#include <tuple>

namespace echelon {
namespace {

struct Place {
  int rank = 0;
  int action = 0;
};

struct PendingEnd {
  double time = 0;
  std::int64_t number = 0;  // in the order in which they were foreseen, so that ties have an order
  Place place = {};
  int version = 0;  // of what was foreseen; compute whose pace changes ends at another time
  bool operator>(const PendingEnd& other) const { return std::tie(time, number) > std::tie(other.time, other.number); }
};

/// Compute under way: how much of it is left, and how fast it goes.
struct Running {
  int action = -1;
  double seconds_left = 0;  // at full pace
  double since = 0;
  double slowdown = 1;
  double earliest_end = 0;  // that its host allows
};

struct RankState {
  int next = 0;       // the action to start
  int awaited = 0;    // the position in its `after` that has not ended yet, as far as is known
  int standing = -1;  // the action, not hidden, whose end is waited for
  int version = 0;    // of the end of what runs
  Running running = {};
  int num_collectives = 0, num_transfers = 0;  // hidden, under way
  std::vector<std::deque<int>> lanes = {};     // actions, the first one at the head
  std::vector<bool> has_ended = {};
  double host = 0;                    // until when it has something to issue
  std::vector<double> earliest = {};  // of each action: the end that its host allows
};

class StepPlay {
 public:
  explicit StepPlay(const StepWork& step) : step_(step), rendezvous_(step.rendezvous_sizes.size()) {
    for (const RankWork& rank : step.ranks) {
      RankState state;
      state.lanes.resize(static_cast<std::size_t>(rank.num_lanes));
      state.has_ended.assign(rank.works.size(), false);
      state.earliest.resize(rank.works.size());
      states_.push_back(std::move(state));
      result_.ranks.emplace_back(rank.works.size());
    }
  }

  StepEvents run() {
    for (int rank = 0; rank < static_cast<int>(states_.size()); ++rank) issue(rank);
    while (!pending_.empty()) {
      const PendingEnd next = pending_.top();
      pending_.pop();
      ++result_.num_events;
      if (!is_outdated(next)) end(next);
    }
    for (int rank = 0; rank < static_cast<int>(states_.size()); ++rank) require_ended(rank);
    return std::move(result_);
  }

 private:
  [[nodiscard]] const Work& work(Place place) const {
    return step_.ranks[std::size_t(place.rank)].works[std::size_t(place.action)];
  }
  [[nodiscard]] ActionTimes& times(Place place) {
    return result_.ranks[std::size_t(place.rank)][std::size_t(place.action)];
  }
  [[nodiscard]] RankState& state(int rank) { return states_[std::size_t(rank)]; }

  /// Starts what the rank's program can start now.
  void issue(int rank) {
    RankState& own = state(rank);
    const Program& program = *step_.ranks[std::size_t(rank)].program;
    while (own.standing < 0 && own.next < static_cast<int>(program.size())) {
      const std::vector<int>& after = program[std::size_t(own.next)].after;
      while (own.awaited < static_cast<int>(after.size()) &&
             own.has_ended[std::size_t(after[std::size_t(own.awaited)])])
        ++own.awaited;
      if (own.awaited < static_cast<int>(after.size())) return;
      const Place place = {rank, own.next++};
      own.awaited = 0;
      if (!work(place).is_hidden) own.standing = place.action;
      times(place).issued = now_;
      issue_on_host(place);
      std::deque<int>& lane = own.lanes[std::size_t(work(place).lane)];
      lane.push_back(place.action);
      if (lane.size() == 1) come(place);
    }
  }

  void issue_on_host(Place place) {
    RankState& own = state(place.rank);
    if (work(place).starts_in_step) own.host = std::max(own.host, now_);
    own.earliest[std::size_t(place.action)] = own.host + work(place).issue.after_host_seconds;
    own.host += work(place).issue.issue_seconds;
  }
  [[nodiscard]] double earliest_end(Place place) { return state(place.rank).earliest[std::size_t(place.action)]; }

  /// At the head of its lane: starts once all that take part have arrived.
  void come(Place place) {
    times(place).ready = now_;
    if (work(place).rendezvous == no_rendezvous) return begin(place, work(place).seconds, earliest_end(place));
    std::vector<Place>& there = rendezvous_[std::size_t(work(place).rendezvous)];
    there.push_back(place);
    if (static_cast<int>(there.size()) < step_.rendezvous_sizes[std::size_t(work(place).rendezvous)]) return;
    double seconds = 0, earliest = 0;
    for (const Place each : there) {
      seconds = std::max(seconds, work(each).seconds);
      earliest = std::max(earliest, earliest_end(each));
    }
    for (const Place each : there) begin(each, seconds, earliest);
  }

  void begin(Place place, double seconds, double earliest) {
    times(place).begin = now_;
    RankState& own = state(place.rank);
    if (work(place).lane == compute_lane) {
      own.running = {place.action, seconds, now_, slowdown(own), earliest};
      return foresee(place, std::max(now_ + seconds * own.running.slowdown, earliest), ++own.version);
    }
    foresee(place, std::max(now_ + seconds, earliest), 0);
    if (work(place).is_hidden) change_load(place, 1);
  }

  void end(const PendingEnd& ended) {
    const Place place = ended.place;
    RankState& own = state(place.rank);
    now_ = ended.time;
    result_.end = std::max(result_.end, now_);
    times(place).end = now_;
    own.has_ended[std::size_t(place.action)] = true;
    if (work(place).holds_host) own.host = std::max(own.host, now_);
    if (work(place).lane == compute_lane) {
      const Running& ran = own.running;
      times(place).host_seconds = std::max(0.0, now_ - (ran.since + std::max(0.0, ran.seconds_left) * ran.slowdown));
      own.running.action = -1;
    } else if (work(place).is_hidden)
      change_load(place, -1);
    if (own.standing == place.action) own.standing = -1;
    std::deque<int>& lane = own.lanes[std::size_t(work(place).lane)];
    lane.pop_front();
    if (!lane.empty()) come({place.rank, lane.front()});
    issue(place.rank);
  }

  /// Something hidden starts or ends while the rank computes.
  void change_load(Place place, int change) {
    RankState& own = state(place.rank);
    (work(place).lane == collective_lane ? own.num_collectives : own.num_transfers) += change;
    Running& running = own.running;
    const double slower = slowdown(own);
    if (running.action < 0 || running.slowdown == slower) return;
    running.seconds_left -= (now_ - running.since) / running.slowdown;
    running.since = now_;
    running.slowdown = slower;
    foresee({place.rank, running.action},
            std::max(now_ + std::max(0.0, running.seconds_left) * slower, running.earliest_end), ++own.version);
  }

  [[nodiscard]] double slowdown(const RankState& rank) const {
    return std::max(rank.num_collectives > 0 ? step_.slowdown_by_collectives : 1.0,
                    rank.num_transfers > 0 ? step_.slowdown_by_transfers : 1.0);
  }

  void foresee(Place place, double time, int version) { pending_.push({time, num_foreseen_++, place, version}); }

  [[nodiscard]] bool is_outdated(const PendingEnd& next) {
    return work(next.place).lane == compute_lane && next.version != state(next.place.rank).version;
  }

  void require_ended(int rank) {
    const auto& has_ended = state(rank).has_ended;
    const auto waiting = std::find(has_ended.begin(), has_ended.end(), false);
    if (waiting == has_ended.end()) return;
    const Program& program = *step_.ranks[std::size_t(rank)].program;
    throw Failure(fmt::format("simulated rank {} waits forever for {}", rank,
                              to_string(program[std::size_t(waiting - has_ended.begin())])));
  }

  const StepWork& step_;
  std::vector<RankState> states_;
  std::vector<std::vector<Place>> rendezvous_;  // who has come
  std::priority_queue<PendingEnd, std::vector<PendingEnd>, std::greater<>> pending_;
  std::int64_t num_foreseen_ = 0;
  double now_ = 0;
  StepEvents result_;
};

}  // namespace

void issue_as_graph(double launch_seconds, std::vector<Work>& works) {
  for (std::size_t i = 1; i + 1 < works.size(); ++i)
    works[i].issue = i == 1 ? issue_of_kernels(1, launch_seconds, works[i].seconds) : IssueTime();
}

StepEvents play(const StepWork& step) { return StepPlay(step).run(); }

}  // namespace echelon
