#include "plan/bounds/program_play.h"

#include "base/error.h"

#include <algorithm>

namespace echelon {

/// Goes through the step without seconds: whatever can start next does.
class ProgramPlay::Order {
 public:
  Order(const StepWork& step, ProgramPlay& play)
      : step_(step),
        play_(play),
        first_of_rank_(step.ranks.size()),
        first_lane_(step.ranks.size()),
        next_(step.ranks.size(), 0),
        standing_(step.ranks.size(), -1) {
    for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
      first_of_rank_[rank] = play.num_actions_;
      first_lane_[rank] = play.num_lanes_;
      play.num_actions_ += step.ranks[rank].works.size();
      play.num_lanes_ += static_cast<std::size_t>(step.ranks[rank].num_lanes);
    }
    play.num_ranks_ = step.ranks.size();
    has_ended_.assign(play.num_actions_, false);
    lanes_.resize(play.num_lanes_);
    play.events_.reserve(play.num_actions_ * 5 / 4);
    play.meetings_.resize(step.rendezvous_sizes.size());
  }

  void find() {
    for (std::size_t rank = 0; rank < next_.size(); ++rank) advance(rank);
    while (!ended_.empty()) {
      const Event ended = ended_.back();
      ended_.pop_back();
      end(ended);
    }
    if (!std::all_of(has_ended_.begin(), has_ended_.end(), [](bool each) { return each; }))
      throw Failure("a rank of a layout's programs waits forever");
  }

 private:
  void advance(std::size_t rank) {
    const Program& program = *step_.ranks[rank].program;
    while (standing_[rank] < 0 && next_[rank] < program.size()) {
      const std::size_t action = next_[rank];
      const std::vector<int>& after = program[action].after;
      const auto is_open = [&](int id) { return !has_ended_[first_of_rank_[rank] + static_cast<std::size_t>(id)]; };
      if (std::any_of(after.begin(), after.end(), is_open)) return;
      ++next_[rank];
      issue(rank, action, after);
    }
  }

  void issue(std::size_t rank, std::size_t action, const std::vector<int>& after) {
    const std::vector<Work>& works = step_.ranks[rank].works;
    const Work& work = works[action];
    Event event = {.is_hidden = work.is_hidden,
                   .rank = static_cast<std::int32_t>(rank),
                   .action = static_cast<std::int32_t>(action),
                   .place = static_cast<std::int32_t>(first_of_rank_[rank] + action),
                   .lane = static_cast<std::int32_t>(first_lane_[rank]) + work.lane,
                   .rendezvous = work.rendezvous};
    for (const int id : after) {
      if (!works[static_cast<std::size_t>(id)].is_hidden) continue;  // the rank has waited for it
      play_.awaited_.push_back(static_cast<std::int32_t>(first_of_rank_[rank]) + id);
      ++event.num_awaited;
    }
    if (!work.is_hidden) standing_[rank] = static_cast<int>(action);
    Lane& lane = lanes_[static_cast<std::size_t>(event.lane)];
    const bool is_first = lane.is_empty();
    lane.events.push_back(event);
    const bool begins = is_first && work.rendezvous == no_rendezvous;
    event.turn = begins ? Turn::issue_and_begin : Turn::issue;
    play_.events_.push_back(event);
    if (begins)
      ended_.push_back(event);
    else if (is_first)
      come(event);
  }

  void come(Event event) {
    event.turn = Turn::begin;
    event.num_awaited = 0;
    if (event.rendezvous == no_rendezvous) {
      play_.events_.push_back(event);
      ended_.push_back(event);
      return;
    }
    const auto number = static_cast<std::size_t>(event.rendezvous);
    std::vector<Event>& there = play_.meetings_[number];
    there.push_back(event);
    const bool is_last = static_cast<int>(there.size()) == step_.rendezvous_sizes[number];
    event.turn = is_last ? Turn::meet_last : Turn::meet;
    play_.events_.push_back(event);
    if (is_last) ended_.insert(ended_.end(), there.begin(), there.end());
  }

  void end(const Event& event) {
    const auto rank = static_cast<std::size_t>(event.rank);
    has_ended_[static_cast<std::size_t>(event.place)] = true;
    if (standing_[rank] == event.action) standing_[rank] = -1;
    Lane& lane = lanes_[static_cast<std::size_t>(event.lane)];
    ++lane.first;
    if (!lane.is_empty()) come(lane.events[lane.first]);
    advance(rank);
  }

  /// Actions that were started, the first one at the head.
  struct Lane {
    std::vector<Event> events = {};
    std::size_t first = 0;
    [[nodiscard]] bool is_empty() const { return first == events.size(); }
  };

  const StepWork& step_;
  ProgramPlay& play_;
  std::vector<std::size_t> first_of_rank_, first_lane_, next_;
  std::vector<int> standing_;  // by rank: the action, not hidden, whose end is waited for
  std::vector<bool> has_ended_;
  std::vector<Lane> lanes_;
  std::vector<Event> ended_;  // whose ends were not looked at yet
};

ProgramPlay::ProgramPlay(const StepWork& step) { Order(step, *this).find(); }

double ProgramPlay::end(const StepWork& step) {
  ranks_.assign(num_ranks_, {});
  lanes_.assign(num_lanes_, 0);
  met_.assign(meetings_.size(), {});
  issued_.resize(num_actions_);
  earliest_ends_.resize(num_actions_);
  ends_.resize(num_actions_);
  double last = 0;
  const auto end_at = [&](const Event& event, double time) {
    const auto place = static_cast<std::size_t>(event.place);
    ends_[place] = lanes_[static_cast<std::size_t>(event.lane)] = time;
    if (!event.is_hidden) ranks_[static_cast<std::size_t>(event.rank)].free = time;
    last = std::max(last, time);
  };
  const std::int32_t* awaited = awaited_.data();
  for (const Event& event : events_) {
    const auto place = static_cast<std::size_t>(event.place);
    const Work& work = step.ranks[static_cast<std::size_t>(event.rank)].works[static_cast<std::size_t>(event.action)];
    if (event.turn == Turn::issue || event.turn == Turn::issue_and_begin) {
      Rank& rank = ranks_[static_cast<std::size_t>(event.rank)];
      for (std::int32_t i = 0; i < event.num_awaited; ++i)
        rank.free = std::max(rank.free, ends_[static_cast<std::size_t>(*awaited++)]);
      issued_[place] = rank.free;
      earliest_ends_[place] = rank.host + work.issue.after_host_seconds;
      rank.host += work.issue.issue_seconds;
      if (event.turn == Turn::issue) continue;
    }
    const double begin = std::max(issued_[place], lanes_[static_cast<std::size_t>(event.lane)]);
    if (event.rendezvous == no_rendezvous) {
      end_at(event, std::max(begin + work.seconds, earliest_ends_[place]));
      continue;
    }
    Meeting& met = met_[static_cast<std::size_t>(event.rendezvous)];
    met.begin = std::max(met.begin, begin);
    met.seconds = std::max(met.seconds, work.seconds);
    met.earliest_end = std::max(met.earliest_end, earliest_ends_[place]);
    if (event.turn != Turn::meet_last) continue;
    for (const Event& each : meetings_[static_cast<std::size_t>(event.rendezvous)])
      end_at(each, std::max(met.begin + met.seconds, met.earliest_end));
  }
  return last;
}

}  // namespace echelon
