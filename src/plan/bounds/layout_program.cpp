#include "plan/bounds/layout_program.h"

#include "predict/step/step_work.h"
#include "schedule/timeline.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace echelon {
namespace {

constexpr int never = -1;

/// Lanes and meetings as StepWorks gives them where all replicas are alike.
class Lanes {
 public:
  explicit Lanes(LayoutProgram& layout) : layout_(layout) {}

  void place_all() {
    const int num_ranks = static_cast<int>(layout_.programs.size());
    for (int rank = 0; rank < num_ranks; ++rank) {
      RankWork& own = layout_.work.ranks.emplace_back();
      own.program = &layout_.programs[static_cast<std::size_t>(rank)];
      wires_.clear();
      num_sums_ = 0;
      for (const Action& action : *own.program) own.works.push_back(placed(action, num_ranks));
      own.num_lanes = first_wire_lane + static_cast<int>(wires_.size());
    }
  }

 private:
  Work placed(const Action& action, int num_ranks) {
    Work work = {.is_hidden = is_hidden(action.kind, {})};
    switch (lane_of(action.kind)) {
      case Lane::compute: break;
      case Lane::transfer: {
        const int at = is_send(action.kind) ? other_stage(action) : action.stage;
        work.lane = wires_
                        .try_emplace({layout_.peer_of(action), is_send(action.kind)},
                                     first_wire_lane + static_cast<int>(wires_.size()))
                        .first->second;
        work.meeting = number({at, action.microbatch, is_forward_transfer(action.kind) ? 0 : 1}, 2);
        break;
      }
      case Lane::collective:
        work.lane = collective_lane;
        if (num_ranks == 1) break;
        if (action.kind == ActionKind::clip || action.kind == ActionKind::report)
          work.meeting = number({never, static_cast<int>(action.kind), 0}, num_ranks);
        if (action.kind == ActionKind::sum_tied)
          work.meeting = number({never, static_cast<int>(action.kind), num_sums_++}, 2);
        break;
    }
    return work;
  }

  int number(const std::array<int, 3>& key, int size) {
    const auto [known, is_new] = numbers_.try_emplace(key, static_cast<int>(layout_.work.meeting_sizes.size()));
    if (is_new) layout_.work.meeting_sizes.push_back(size);
    return known->second;
  }

  LayoutProgram& layout_;
  std::map<std::pair<int, bool>, int> wires_;
  std::map<std::array<int, 3>, int> numbers_;
  int num_sums_ = 0;
};

}  // namespace

LayoutProgram::LayoutProgram(const Schedule& schedule, const LoweringOptions& lowering)
    : options(lowering),
      rank_of_stage(schedule.rank_of_stage),
      programs(lower(schedule, lowering)),
      first_to_form(rank_of_stage.size(), never) {
  for (const Program& program : programs)
    for (const Action& action : program)
      if (computes_weight_gradients(action.kind) && first_to_form[static_cast<std::size_t>(action.stage)] == never)
        first_to_form[static_cast<std::size_t>(action.stage)] = action.microbatch;
  Lanes(*this).place_all();
  for (const Program& program : programs) lifetimes.push_back(lifetimes_of(program, options, rank_of_stage));
}

int LayoutProgram::peer_of(const Action& transfer) const {
  return rank_of_stage[static_cast<std::size_t>(other_stage(transfer))];
}

}  // namespace echelon
