// Any order that data allows: at each turn some rank does some pass whose inputs are there, so every choice is a
// schedule.
#pragma once

#include "schedule/schedule.h"

#include <random>
#include <utility>
#include <vector>

namespace echelon {

struct RandomScheduleOptions {
  int num_ranks = 1;
  int num_virtual = 1;
  int num_microbatches = 1;
  unsigned seed = 0;
};

/// Placed in a loop or, with two stages a rank, in a V; backwards fused or split, one by one as chance has it.
inline Schedule random_schedule(const RandomScheduleOptions& options) {
  std::mt19937 random(options.seed);
  const int p = options.num_ranks, m = options.num_microbatches, last = p * options.num_virtual - 1;
  const bool is_v = options.num_virtual == 2 && random() % 2 == 0;
  Schedule schedule = is_v ? empty_v_schedule(p, m) : empty_loop_schedule(p, last + 1, m);
  enum class State { idle, forward_done, input_done, done };
  std::vector<std::vector<State>> state(last + 1, std::vector<State>(m, State::idle));
  const auto ready = [&] {
    std::vector<std::pair<int, int>> places;
    for (int stage = 0; stage <= last; ++stage)
      for (int mb = 0; mb < m; ++mb) {
        const State now = state[stage][mb];
        const bool can_forward = now == State::idle && (stage == 0 || state[stage - 1][mb] != State::idle);
        const bool can_go_back =
            now == State::forward_done && (stage == last || state[stage + 1][mb] >= State::input_done);
        if (can_forward || can_go_back || now == State::input_done) places.emplace_back(stage, mb);
      }
    return places;
  };
  for (auto places = ready(); !places.empty(); places = ready()) {
    const auto [stage, mb] = places[random() % places.size()];
    State& now = state[stage][mb];
    const bool is_fused = random() % 2 == 0;
    switch (now) {
      case State::idle: schedule.add(ActionKind::forward, stage, mb); break;
      case State::forward_done:
        schedule.add(is_fused ? ActionKind::backward : ActionKind::backward_input, stage, mb);
        break;
      case State::input_done: schedule.add(ActionKind::backward_weight, stage, mb); break;
      case State::done: break;
    }
    now = now == State::idle                        ? State::forward_done
          : now == State::forward_done && !is_fused ? State::input_done
                                                    : State::done;
  }
  return schedule;
}

}  // namespace echelon
