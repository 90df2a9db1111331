// The event engine on programs whose times can be worked out by hand, and against schedule/timeline.h, which knows no
// lanes.
#include "predict/step/step_events.h"

#include "base/error.h"
#include "schedule/generators/catalog.h"
#include "schedule/lowering/lower.h"
#include "schedule/timeline.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <tuple>

namespace echelon {
namespace {

LoweringOptions plain_options(const Schedule& schedule) {
  LoweringOptions options;
  options.stages.assign(static_cast<std::size_t>(schedule.num_stages),
                        {.num_units = 2, .unit_sums_replicas = {false, false, false}});
  return options;
}

/// What ranks do together is numbered by its receive, or by its kind and count.
class RendezvousOf {
 public:
  explicit RendezvousOf(StepWork& step) : step_(step) {}
  int of(int rank, const Action& action) {
    switch (action.kind) {
      case ActionKind::send_forward:
        return number({int(ActionKind::receive_forward), action.stage + 1, action.microbatch});
      case ActionKind::send_backward:
        return number({int(ActionKind::receive_backward), action.stage - 1, action.microbatch});
      case ActionKind::receive_forward:
      case ActionKind::receive_backward: return number({int(action.kind), action.stage, action.microbatch});
      case ActionKind::sum_tied:
      case ActionKind::clip:
      case ActionKind::report: return number({int(action.kind), counts_[{rank, action.kind}]++, 0});
      default: return no_rendezvous;
    }
  }

 private:
  using Key = std::tuple<int, int, int>;
  int number(const Key& key) {
    const auto [known, is_new] = numbers_.try_emplace(key, int(step_.rendezvous_sizes.size()));
    if (is_new) step_.rendezvous_sizes.push_back(0);
    ++step_.rendezvous_sizes[std::size_t(known->second)];
    return known->second;
  }
  StepWork& step_;
  std::map<Key, int> numbers_;
  std::map<std::pair<int, ActionKind>, int> counts_;
};

/// Compute on its lane; all else hidden, each on a lane of its own.
StepWork without_contention(const std::vector<Program>& programs, const Cost& cost) {
  StepWork step;
  RendezvousOf all_rendezvous(step);
  for (int rank = 0; rank < int(programs.size()); ++rank) {
    RankWork own{.program = &programs[std::size_t(rank)]};
    own.num_lanes = first_wire_lane + int(own.program->size());
    for (const Action& action : *own.program) {
      const bool computes = is_compute(action.kind);
      own.works.push_back({cost(rank, action), computes ? compute_lane : first_wire_lane + action.id,
                           all_rendezvous.of(rank, action), !computes});
    }
    step.ranks.push_back(std::move(own));
  }
  return step;
}

Schedule scheduled(PipelineSchedule kind, int num_ranks, int num_microbatches, int num_virtual = 0) {
  const ScheduleRequest request =
      checked(kind, {.num_ranks = num_ranks, .num_microbatches = num_microbatches, .num_virtual = num_virtual}, {});
  return make_schedule(kind, request, {});
}

TEST(StepEvents, AreThoseOfTheGraphWhereEverythingOverlaps) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> seconds(0.1, 2);
  for (const ScheduleEntry& entry : all_schedules()) {
    for (const int num_ranks : {1, 2, 4}) {
      const Schedule schedule = scheduled(entry.kind, num_ranks, 2 * num_ranks);
      const std::vector<Program> programs = lower(schedule, plain_options(schedule));
      std::map<std::pair<int, int>, double> drawn;
      const double message = seconds(random), collective = seconds(random);  // alike for all who take part
      for (int rank = 0; rank < num_ranks; ++rank)
        for (const Action& action : programs[std::size_t(rank)]) drawn[{rank, action.id}] = seconds(random);
      const Cost cost = [&](int rank, const Action& action) {
        if (lane_of(action.kind) == Lane::transfer) return message;
        return lane_of(action.kind) == Lane::collective ? collective : drawn[{rank, action.id}];
      };
      const Timeline expected = simulate_programs(programs, cost);
      const StepEvents events = play(without_contention(programs, cost));
      for (const Event& event : expected.events)
        EXPECT_NEAR(events.ranks[std::size_t(event.rank)][std::size_t(event.action_id)].end, event.end, 1e-9)
            << entry.name << " rank " << event.rank << " "
            << to_string(programs[std::size_t(event.rank)][std::size_t(event.action_id)]);
    }
  }
}

double step_seconds(PipelineSchedule kind, int num_ranks, int num_microbatches, int num_virtual,
                    const StageCosts& costs) {
  const Schedule schedule = scheduled(kind, num_ranks, num_microbatches, num_virtual);
  const std::vector<Program> programs = lower(schedule, plain_options(schedule));
  StageCosts of_units = costs;
  of_units.num_units = 2;
  return play(without_contention(programs, cost_of(of_units))).end;
}

// Narayanan et al. 2021, section 2.2: the bubble is (p - 1)/m of the ideal time, hence (p - 1)/(m + p - 1) of the step;
// interleaving divides it by v.
TEST(StepEvents, HaveTheBubbleOfThePapers) {
  const double F = 1, B = 2;
  for (const int p : {2, 4, 8})
    for (const int m : {8, 16}) {
      EXPECT_NEAR(step_seconds(PipelineSchedule::one_f_one_b, p, m, 0, {F, B}), (m + p - 1) * (F + B), 1e-9);
      EXPECT_NEAR(step_seconds(PipelineSchedule::gpipe, p, m, 0, {F, B}), (m + p - 1) * (F + B), 1e-9);
      for (const int v : {2, 4})
        EXPECT_NEAR(step_seconds(PipelineSchedule::interleaved_one_f_one_b, p, m, v, {F / v, B / v}),
                    (m + (p - 1.0) / v) * (F + B), 1e-9);
    }
}

/// A program by hand: `after` and work of each action.
struct Line {
  Program program;
  std::vector<Work> works;
  void add(ActionKind kind, const Work& work, std::vector<int> after = {}) {
    program.push_back({.kind = kind, .stage = 0, .id = int(program.size()), .after = std::move(after)});
    works.push_back(work);
  }
};

StepWork step_of(const std::vector<const Line*>& lines, std::vector<int> rendezvous_sizes = {}) {
  StepWork step;
  for (const Line* line : lines) step.ranks.push_back({&line->program, line->works});
  step.rendezvous_sizes = std::move(rendezvous_sizes);
  return step;
}

constexpr Work hidden_collective(double seconds, int rendezvous = no_rendezvous) {
  return {seconds, collective_lane, rendezvous, true};
}

TEST(StepEvents, ALaneIsFirstInFirstOut) {
  Line line;  // three collectives at once: one after the other beside compute that ends sooner
  line.add(ActionKind::reduce_gradients, hidden_collective(2));
  line.add(ActionKind::reduce_gradients, hidden_collective(3));
  line.add(ActionKind::reduce_gradients, hidden_collective(4));
  line.add(ActionKind::backward, {.seconds = 1});
  line.add(ActionKind::update, {.seconds = 1}, {1});
  const StepEvents events = play(step_of({&line}));
  const auto& times = events.ranks.front();
  EXPECT_DOUBLE_EQ(times[1].issued, 0);
  EXPECT_DOUBLE_EQ(times[1].begin, 2);
  EXPECT_DOUBLE_EQ(times[2].begin, 5);
  EXPECT_DOUBLE_EQ(times[4].begin, 5);
  EXPECT_DOUBLE_EQ(events.end, 9);
}

TEST(StepEvents, WhatIsNotHiddenKeepsComputeWaiting) {
  for (const bool is_hidden : {false, true}) {
    Line line;
    line.add(ActionKind::reduce_gradients, {.seconds = 2, .lane = collective_lane, .is_hidden = is_hidden});
    line.add(ActionKind::backward, {.seconds = 3});
    EXPECT_DOUBLE_EQ(play(step_of({&line})).end, is_hidden ? 3 : 5);
  }
}

TEST(StepEvents, TogetherMeansFromTheLastToComeAndAsLongAsTheSlowest) {
  Line early, late;
  early.add(ActionKind::backward, {.seconds = 1});
  early.add(ActionKind::reduce_gradients, hidden_collective(2, 0), {0});
  late.add(ActionKind::backward, {.seconds = 4});
  late.add(ActionKind::reduce_gradients, hidden_collective(3, 0), {0});
  const StepEvents events = play(step_of({&early, &late}, {2}));
  EXPECT_DOUBLE_EQ(events.ranks[0][1].ready, 1);
  EXPECT_DOUBLE_EQ(events.ranks[0][1].begin, 4);
  EXPECT_DOUBLE_EQ(events.ranks[0][1].end, 7);
  EXPECT_DOUBLE_EQ(events.ranks[1][1].end, 7);
}

// 2 s of the backward beside the collective go at two thirds: they take 3 s, the rest 8 s.
TEST(StepEvents, ComputeIsSlowerBesideWhatIsHidden) {
  Line line;
  line.add(ActionKind::reduce_gradients, hidden_collective(3));
  line.add(ActionKind::backward, {.seconds = 10});
  StepWork step = step_of({&line});
  step.slowdown_by_collectives = 1.5;
  EXPECT_DOUBLE_EQ(play(step).end, 11);
  step.ranks.front().works.front().seconds = 30;  // all of it
  EXPECT_DOUBLE_EQ(play(step).ranks.front()[1].end, 15);
}

TEST(StepEvents, ARendezvousWithoutItsOtherHalfIsAFailureThatNamesIt) {
  Line line;
  line.add(ActionKind::receive_forward, {.lane = first_wire_lane, .rendezvous = 0, .is_hidden = true});
  line.add(ActionKind::forward, {.seconds = 1}, {0});
  StepWork step = step_of({&line}, {2});
  step.ranks.front().num_lanes = first_wire_lane + 1;
  EXPECT_THROW((void)play(step), Failure);
}

}  // namespace
}  // namespace echelon
