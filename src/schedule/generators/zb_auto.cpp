// The paper's heuristics (section 3.1), for one rank that has become free:
//
//     before the first B   as many F as memory allows and as end before the B comes; some ranks may run one more,
//                          though it delays the B
//     then                 one F and one B alternately; a W when memory is full, or when it fills a gap
//     at the end           the W that are left
//
// Ranks decide in order of time, so each knows which messages will arrive. The choices that the paper leaves open are
// searched on a grid; the schedule of least cost wins.
#include "schedule/generators/zb_auto.h"

#include "schedule/simulation/rates.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace echelon {
namespace {

using Kind = ActionKind;
constexpr double rounding = 1e-9;

// In which a W is run.
enum class Gaps : std::uint8_t { that_hold_a_weight, that_would_be_the_largest_bubble_too, all };

struct Choices {
  Gaps gaps{};
  int num_eager_ranks = 0;  // the first ranks, which have the longest wait, run one more F before their first B
};

struct RankState {
  double free_since = 0, bubble = 0;
  int num_forwards = 0, num_backwards = 0, num_weights = 0;
  bool forward_was_last = false, sleeps = false;
  std::vector<double> input_comes, gradient_comes;  // [microbatch]
};

struct Next {
  Kind kind{};
  double start = no_time;
};

class Greedy {
 public:
  Greedy(Schedule& schedule, const PassTimes& times, const MemoryLimit& memory, const Choices& choices);
  void run();

 private:
  [[nodiscard]] Next next(int rank) const;
  [[nodiscard]] Next next_before_first_backward(int rank, double forward, double backward) const;
  [[nodiscard]] bool fills(double gap, const RankState& state) const;
  void do_next(int rank, const Next& next);
  void wake(int rank);

  Schedule& schedule_;
  const PassTimes& times_;
  const MemoryLimit& memory_;
  const Choices& choices_;
  const int num_ranks_, num_microbatches_;
  std::vector<RankState> ranks_;
  double largest_bubble_ = 0;
  using Turn = std::pair<double, int>;  // (free since, rank)
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns_;
};

Greedy::Greedy(Schedule& schedule, const PassTimes& times, const MemoryLimit& memory, const Choices& choices)
    : schedule_(schedule),
      times_(times),
      memory_(memory),
      choices_(choices),
      num_ranks_(schedule.num_stages),
      num_microbatches_(schedule.num_microbatches),
      ranks_(schedule.ranks.size()) {
  for (int rank = 0; rank < num_ranks_; ++rank) {
    ranks_[rank].input_comes.assign(num_microbatches_, rank == 0 ? 0 : no_time);
    ranks_[rank].gradient_comes.assign(num_microbatches_, no_time);
    turns_.emplace(0, rank);
  }
}

void Greedy::run() {
  while (!turns_.empty()) {
    const int rank = turns_.top().second;
    turns_.pop();
    if (ranks_[rank].num_weights == num_microbatches_) continue;
    const Next chosen = next(rank);
    if (chosen.start == no_time)
      ranks_[rank].sleeps = true;
    else
      do_next(rank, chosen);
  }
}

Next Greedy::next(int rank) const {
  const RankState& state = ranks_[rank];
  const double now = state.free_since;
  if (state.num_backwards == num_microbatches_) return {Kind::backward_weight, now};

  const bool has_forward = state.num_forwards < num_microbatches_, has_weight = state.num_weights < state.num_backwards;
  const double held = state.num_forwards - state.num_backwards * (1 - memory_.weight_memory) -
                      state.num_weights * memory_.weight_memory;
  const bool is_full = has_forward && held + 1 > memory_.limit + rounding;
  const double forward = has_forward && !is_full ? std::max(now, state.input_comes[state.num_forwards]) : no_time;
  const double backward =
      state.num_backwards < state.num_forwards ? std::max(now, state.gradient_comes[state.num_backwards]) : no_time;

  if (state.num_backwards == 0) return next_before_first_backward(rank, forward, backward);
  const bool forward_is_due = !state.forward_was_last && has_forward;
  if (forward_is_due && is_full && has_weight) return {Kind::backward_weight, now};
  const bool takes_forward = forward_is_due ? forward <= now || backward > now : backward == no_time && !has_weight;
  const Next wanted =
      takes_forward && forward < no_time ? Next{Kind::forward, forward} : Next{Kind::backward_input, backward};
  if (wanted.start > now && has_weight && fills(wanted.start - now, state)) return {Kind::backward_weight, now};
  return wanted;
}

Next Greedy::next_before_first_backward(int rank, double forward, double backward) const {
  const bool delays_backward = forward + times_.forward > backward + rounding;
  const bool has_come = backward <= ranks_[rank].free_since;
  if (forward < no_time && !has_come && (!delays_backward || rank < choices_.num_eager_ranks))
    return {Kind::forward, forward};
  return {Kind::backward_input, backward};
}

bool Greedy::fills(double gap, const RankState& state) const {
  if (choices_.gaps == Gaps::all || gap >= times_.backward_weight - rounding) return true;
  return choices_.gaps == Gaps::that_would_be_the_largest_bubble_too && state.bubble + gap > largest_bubble_;
}

void Greedy::do_next(int rank, const Next& next) {
  RankState& state = ranks_[rank];
  if (state.num_forwards > 0) state.bubble += next.start - state.free_since;
  largest_bubble_ = std::max(largest_bubble_, state.bubble);
  if (next.kind == Kind::forward) {
    const double end = state.free_since = next.start + times_.forward;
    const int microbatch = state.num_forwards++;
    schedule_.add(next.kind, rank, microbatch);
    if (rank + 1 < num_ranks_) {
      ranks_[rank + 1].input_comes[microbatch] = end + times_.p2p;
      wake(rank + 1);
    } else {
      state.gradient_comes[microbatch] = end;
    }
  } else if (next.kind == Kind::backward_input) {
    const double end = state.free_since = next.start + times_.backward_input;
    const int microbatch = state.num_backwards++;
    schedule_.add(next.kind, rank, microbatch);
    if (rank > 0) {
      ranks_[rank - 1].gradient_comes[microbatch] = end + times_.p2p;
      wake(rank - 1);
    }
  } else {
    state.free_since = next.start + times_.backward_weight;
    schedule_.add(next.kind, rank, state.num_weights++);
  }
  if (next.kind != Kind::backward_weight) state.forward_was_last = next.kind == Kind::forward;
  turns_.emplace(state.free_since, rank);
}

void Greedy::wake(int rank) {
  if (std::exchange(ranks_[rank].sleeps, false)) turns_.emplace(ranks_[rank].free_since, rank);
}

Schedule greedy_schedule(int num_ranks, int num_microbatches, const PassTimes& times, const MemoryLimit& memory,
                         const Choices& choices) {
  Schedule schedule = empty_loop_schedule(num_ranks, num_ranks, num_microbatches);
  Greedy(schedule, times, memory, choices).run();
  return schedule;
}

}  // namespace

Schedule zb_auto_schedule(int num_ranks, int num_microbatches, const PassTimes& times, const MemoryLimit& memory) {
  Schedule best;
  double best_cost = no_time;
  const auto consider = [&](Schedule schedule) {
    const double cost = longest_rank(simulate_schedule(schedule, times), num_ranks);
    if (cost < best_cost) best_cost = cost, best = std::move(schedule);
    return bubble_rate(best_cost, num_microbatches, times) > rounding;
  };
  for (const auto handcrafted : {zb_h1_schedule, zb_h2_schedule}) {
    Schedule schedule = handcrafted(num_ranks, num_microbatches);
    const std::vector<double> peaks = peak_memory(schedule, memory.weight_memory);
    const bool keeps_to_limit = *std::max_element(peaks.begin(), peaks.end()) <= memory.limit + rounding;
    if (keeps_to_limit && !consider(std::move(schedule))) return best;  // without a bubble: none is better
  }
  for (const Gaps gaps : {Gaps::that_hold_a_weight, Gaps::that_would_be_the_largest_bubble_too, Gaps::all}) {
    for (int eager = 0; eager <= num_ranks; eager = std::max(1, 2 * eager)) {
      if (!consider(
              greedy_schedule(num_ranks, num_microbatches, times, memory, {.gaps = gaps, .num_eager_ranks = eager})))
        return best;
    }
  }
  return best;
}

}  // namespace echelon
