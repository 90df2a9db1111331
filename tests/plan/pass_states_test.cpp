// The states of few passes give what all passes give, whatever stages save: against a walk over every schedule.
#include "plan/bounds/pass_states.h"

#include "schedule/generators/catalog.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace echelon {
namespace {

/// Bytes of a stage's microbatch, by stage, and what a pass has for itself.
struct Weights {
  std::vector<std::int64_t> stash, input_stash, gradient_stash;
  std::map<std::pair<int, PassKind>, std::int64_t> of_pass;
};

Weights any_weights(int num_stages, std::mt19937& random) {
  Weights weights;
  for (int stage = 0; stage < num_stages; ++stage) {
    for (std::vector<std::int64_t>* each : {&weights.stash, &weights.input_stash, &weights.gradient_stash})
      each->push_back(random() % 1000);
    for (const PassKind kind :
         {PassKind::forward, PassKind::backward, PassKind::backward_input, PassKind::backward_weight})
      weights.of_pass[{stage, kind}] = random() % 3000;
  }
  return weights;
}

std::int64_t most_of_all_passes(const std::vector<CompactPass>& order, const Weights& weights) {
  std::int64_t alive = 0, most = 0;
  for (const auto& [kind, stage, microbatch] : order) {
    const std::int64_t stash = weights.stash[stage], input = weights.input_stash[stage],
                       gradient = weights.gradient_stash[stage];
    if (kind == PassKind::forward) alive += stash + input;
    if (kind == PassKind::backward_input) alive += gradient;
    most = std::max(most, alive + weights.of_pass.at({stage, kind}));
    if (kind == PassKind::backward) alive -= stash + input;
    if (kind == PassKind::backward_input) alive -= input;
    if (kind == PassKind::backward_weight) alive -= stash + gradient;
  }
  EXPECT_EQ(alive, 0);
  return most;
}

std::int64_t most_of_states(const RankStates& rank, const Weights& weights) {
  std::int64_t most = 0;
  for (const PassState& pass : rank.states) {
    std::int64_t held = weights.of_pass.at({pass.stage, pass.kind});
    for (std::size_t i = 0; i < rank.stages.size(); ++i)
      held += pass.held[i].stashes * weights.stash[rank.stages[i]] +
              pass.held[i].input_stashes * weights.input_stash[rank.stages[i]] +
              pass.held[i].gradient_stashes * weights.gradient_stash[rank.stages[i]];
    most = std::max(most, held);
  }
  return most;
}

TEST(PassStates, HoldAsMuchAsAllPasses) {
  std::mt19937 random(1);
  for (const ScheduleEntry& entry : all_schedules())
    for (const int num_microbatches : {4, 8, 20}) {
      constexpr int num_ranks = 4;
      ScheduleRequest request{.num_ranks = num_ranks,
                              .num_microbatches = num_microbatches,
                              .num_virtual = std::min(entry.most_virtual, std::max(entry.least_virtual, 3))};
      if (num_microbatches < entry.microbatches_per_rank * num_ranks) continue;
      const CompactSchedule schedule = compact(entry.generate(request), entry.backward);
      const std::vector<RankStates> ranks = states_of(schedule);
      ASSERT_EQ(ranks.size(), schedule.ranks.size());
      for (int draw = 0; draw < 20; ++draw) {
        const Weights weights = any_weights(schedule.num_stages(), random);
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
          SCOPED_TRACE(fmt::format("{} with {} microbatches, rank {}", entry.name, num_microbatches, rank));
          EXPECT_EQ(most_of_states(ranks[rank], weights), most_of_all_passes(schedule.ranks[rank], weights));
          EXPECT_LT(ranks[rank].states.size(), schedule.ranks[rank].size());
        }
      }
    }
}

// Every third stage is of a kind with the same weights; no pass weighs anything itself.
TEST(PassStates, OfKindsHoldAsMuchAsThoseOfStages) {
  std::mt19937 random(2);
  const auto most_held = [](const RankStates& rank, const Weights& weights, int num_open_weight) {
    std::int64_t most = 0;
    for (const PassState& pass : rank.states) {
      std::int64_t held = 0;
      for (std::size_t i = 0; i < rank.stages.size(); ++i)
        held += pass.held[i].stashes * weights.stash[rank.stages[i]] +
                pass.held[i].input_stashes * weights.input_stash[rank.stages[i]] +
                pass.held[i].gradient_stashes * weights.gradient_stash[rank.stages[i]] +
                pass.held[i].open * num_open_weight;
      most = std::max(most, held);
    }
    return most;
  };
  for (const ScheduleEntry& entry : all_schedules()) {
    constexpr int num_ranks = 4, num_kinds = 3;
    const ScheduleRequest request{.num_ranks = num_ranks,
                                  .num_microbatches = 8,
                                  .num_virtual = std::min(entry.most_virtual, std::max(entry.least_virtual, 6))};
    const CompactSchedule schedule = compact(entry.generate(request), entry.backward);
    std::vector<std::size_t> kinds;
    for (int stage = 0; stage < schedule.num_stages(); ++stage) kinds.push_back(stage % num_kinds);
    const std::vector<RankStates> all = states_of(schedule), of_kinds = states_of_kinds(all, kinds);
    ASSERT_EQ(of_kinds.size(), all.size());
    for (int draw = 0; draw < 20; ++draw) {
      Weights weights = any_weights(schedule.num_stages(), random);
      for (std::vector<std::int64_t>* each : {&weights.stash, &weights.input_stash, &weights.gradient_stash})
        for (std::size_t stage = num_kinds; stage < each->size(); ++stage) (*each)[stage] = (*each)[stage % num_kinds];
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        SCOPED_TRACE(fmt::format("{}, rank {}", entry.name, rank));
        EXPECT_EQ(most_held(of_kinds[rank], weights, 100), most_held(all[rank], weights, 100));
        EXPECT_LE(of_kinds[rank].states.size(), all[rank].states.size());
        EXPECT_LE(of_kinds[rank].stages.size(), std::size_t{num_kinds});
      }
    }
  }
}

}  // namespace
}  // namespace echelon
