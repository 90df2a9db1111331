#include "plan/bounds/layout_program.h"

#include "predict/step/step_work.h"
#include "schedule/lowering/passage.h"
#include "schedule/timeline.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace echelon {
namespace {

constexpr int never = -1;

/// Reads lives off a program as blueprint/lifetimes.cpp does.
class Lives {
 public:
  Lives(const LayoutProgram& layout, int rank)
      : layout_(layout), rank_(rank), program_(layout.programs[static_cast<std::size_t>(rank)]) {}

  std::vector<BufferLife> list() {
    for (const Action& action : program_) add_of_unit(action);
    for (const auto& [place, passage] : passages_) {
      add_forward(place.first, place.second, passage);
      if (passage.first_backward != Passage::never) add_backward(place.first, place.second, passage);
    }
    return std::move(lives_);
  }

 private:
  using What = BufferLife::What;

  [[nodiscard]] bool holds(int stage) const {
    return stage >= 0 && stage < static_cast<int>(layout_.rank_of_stage.size()) &&
           layout_.rank_of_stage[static_cast<std::size_t>(stage)] == rank_;
  }

  void add_forward(int stage, int microbatch, const Passage& at) {
    add(What::stash, stage, at.first_forward, at.last);
    add(What::input_stash, stage, at.first_forward, std::max(at.forward, at.last_input));
    if (stage > 0)
      add(What::boundary, stage, holds(stage - 1) ? passages_.at({stage - 1, microbatch}).forward : at.receive_forward,
          at.last);
    if (at.send_forward != Passage::never)
      add(What::boundary, stage, at.forward, released_at_[static_cast<std::size_t>(at.send_forward)]);
  }

  void add_backward(int stage, int microbatch, const Passage& at) {
    if (at.is_split) add(What::gradient_stash, stage, at.first_backward, at.last);
    const bool is_last = stage + 1 == static_cast<int>(layout_.rank_of_stage.size());
    if (!is_last)
      add(What::boundary, stage,
          holds(stage + 1) ? passages_.at({stage + 1, microbatch}).first_backward : at.receive_backward, at.last_input);
    if (at.send_backward != Passage::never)
      add(What::boundary, stage, at.first_backward, released_at_[static_cast<std::size_t>(at.send_backward)]);
    const int num_between = layout_.options.stages[static_cast<std::size_t>(stage)].num_units - 1;
    for (int flow = 0; flow < std::min(num_between, 2); ++flow)
      add(What::boundary, stage, at.first_backward, at.last_input);
  }

  void add_of_unit(const Action& action) {
    const std::pair place = {action.stage, action.unit};
    const LoweringOptions& options = layout_.options;
    switch (action.kind) {
      case ActionKind::gather_parameters: gathered_[place] = action.id; return;
      case ActionKind::release_parameters:
        return add(What::gathered_parameters, action.stage, gathered_.at(place), action.id, action.unit);
      case ActionKind::open_gradients: opened_[place] = action.id; return;
      case ActionKind::reduce_gradients: reduced_[place] = action.id; return;
      case ActionKind::store_gradients: {
        const int reduced = reduced_.at(place);
        if (options.shards_gradients)
          add(What::unreduced_gradients, action.stage, opened_.at(place),
              options.converts_gradients ? reduced : action.id, action.unit);
        if (options.converts_gradients) add(What::converted_gradients, action.stage, reduced, action.id, action.unit);
        return;
      }
      default: return;
    }
  }

  void add(What what, int stage, int first, int last, int unit = 0) {
    lives_.push_back({what, stage, unit, first, last});
  }

  const LayoutProgram& layout_;
  int rank_;
  const Program& program_;
  std::vector<int> released_at_ = released_at(program_);
  Passages passages_ = passages_of(program_);
  std::map<std::pair<int, int>, int> gathered_, opened_, reduced_;  // by stage and unit: the last such action
  std::vector<BufferLife> lives_;
};

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
      if (forms_weight_gradients(action.kind) && first_to_form[static_cast<std::size_t>(action.stage)] == never)
        first_to_form[static_cast<std::size_t>(action.stage)] = action.microbatch;
  Lanes(*this).place_all();
  for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) lives.push_back(Lives(*this, rank).list());
}

int LayoutProgram::peer_of(const Action& transfer) const {
  return rank_of_stage[static_cast<std::size_t>(other_stage(transfer))];
}

}  // namespace echelon
