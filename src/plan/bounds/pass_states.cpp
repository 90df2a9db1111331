#include "plan/bounds/pass_states.h"

#include <algorithm>
#include <iterator>

namespace echelon {
namespace {

using Held = std::vector<HeldMicrobatches>;

bool has_all_of(const Held& a, const Held& b) {
  return std::ranges::equal(a, b, [](const HeldMicrobatches& x, const HeldMicrobatches& y) {
    return x.stashes >= y.stashes && x.input_stashes >= y.input_stashes && x.gradient_stashes >= y.gradient_stashes &&
           x.open >= y.open;
  });
}

/// The states of one rank with most.
class MostHeld {
 public:
  explicit MostHeld(std::size_t num_stages) : by_kind_(num_stages * num_pass_kinds) {}

  /// `place`: of the pass's stage among those of the rank.
  void add(PassKind kind, std::uint16_t stage, std::size_t place, const Held& held) {
    std::vector<Entry>& known = by_kind_[place * num_pass_kinds + static_cast<std::size_t>(kind)];
    // The last one first: most often a pass is like the one before it.
    if (std::any_of(known.rbegin(), known.rend(), [&](const Entry& each) { return has_all_of(each.state.held, held); }))
      return;
    std::erase_if(known, [&](const Entry& each) { return has_all_of(held, each.state.held); });
    known.push_back({num_added_++, {kind, stage, held}});
  }

  [[nodiscard]] std::vector<PassState> in_order() {
    std::vector<Entry> all;
    for (std::vector<Entry>& known : by_kind_) std::ranges::move(known, std::back_inserter(all));
    std::ranges::sort(all, {}, &Entry::number);
    std::vector<PassState> states;
    for (Entry& each : all) states.push_back(std::move(each.state));
    return states;
  }

 private:
  struct Entry {
    std::int64_t number = 0;
    PassState state;
  };
  std::vector<std::vector<Entry>> by_kind_;
  std::int64_t num_added_ = 0;
};

RankStates states_of_rank(const std::vector<CompactPass>& order, std::vector<std::uint16_t> stages) {
  Held held(stages.size());
  MostHeld most(stages.size());
  for (const CompactPass& pass : order) {
    const auto place = static_cast<std::size_t>(std::ranges::find(stages, pass.stage) - stages.begin());
    HeldMicrobatches& own = held[place];
    if (pass.kind == PassKind::forward) {
      ++own.stashes;
      ++own.input_stashes;
      own.open = 1;
    }
    if (pass.kind == PassKind::backward_input) ++own.gradient_stashes;
    most.add(pass.kind, pass.stage, place, held);
    if (pass.kind == PassKind::backward || pass.kind == PassKind::backward_input) --own.input_stashes;
    if (pass.kind == PassKind::backward || pass.kind == PassKind::backward_weight) own.open = --own.stashes > 0 ? 1 : 0;
    if (pass.kind == PassKind::backward_weight) --own.gradient_stashes;
  }
  return {std::move(stages), most.in_order()};
}

RankStates states_of_kinds(const RankStates& rank, const std::vector<std::size_t>& kinds) {
  RankStates merged;
  std::vector<std::size_t> places;  // by the rank's stages: that of its kind
  for (const std::uint16_t stage : rank.stages) {
    const auto same =
        std::ranges::find_if(merged.stages, [&](std::uint16_t each) { return kinds[each] == kinds[stage]; });
    places.push_back(static_cast<std::size_t>(same - merged.stages.begin()));
    if (same == merged.stages.end()) merged.stages.push_back(stage);
  }
  MostHeld most(merged.stages.size());
  for (const PassState& state : rank.states) {
    Held held(merged.stages.size());
    for (std::size_t i = 0; i < places.size(); ++i) {
      HeldMicrobatches& of_kind = held[places[i]];
      of_kind.stashes += state.held[i].stashes;
      of_kind.input_stashes += state.held[i].input_stashes;
      of_kind.gradient_stashes += state.held[i].gradient_stashes;
      of_kind.open += state.held[i].open;
    }
    const auto own = static_cast<std::size_t>(std::ranges::find(rank.stages, state.stage) - rank.stages.begin());
    most.add(state.kind, merged.stages[places[own]], places[own], held);
  }
  merged.states = most.in_order();
  return merged;
}

}  // namespace

std::vector<RankStates> states_of_kinds(const std::vector<RankStates>& ranks, const std::vector<std::size_t>& kinds) {
  std::vector<RankStates> merged;
  for (const RankStates& rank : ranks) merged.push_back(states_of_kinds(rank, kinds));
  return merged;
}

std::vector<RankStates> states_of(const CompactSchedule& schedule) {
  std::vector<std::vector<std::uint16_t>> stages(schedule.ranks.size());
  for (std::size_t stage = 0; stage < schedule.rank_of_stage.size(); ++stage)
    stages[static_cast<std::size_t>(schedule.rank_of_stage[stage])].push_back(static_cast<std::uint16_t>(stage));
  std::vector<RankStates> states;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    states.push_back(states_of_rank(schedule.ranks[rank], std::move(stages[rank])));
  return states;
}

}  // namespace echelon
