#include "plan/bounds/compact_schedule.h"

#include <algorithm>
#include <utility>

namespace echelon {
namespace {

class Clock {
 public:
  Clock(const CompactSchedule& schedule, const std::vector<ClockedStage>& stages, double transfer_seconds,
        const PassLane& lane)
      : schedule_(schedule),
        stages_(stages),
        transfer_seconds_(transfer_seconds),
        lane_(lane),
        num_microbatches_(static_cast<std::size_t>(schedule.num_microbatches)),
        forward_end_(stages.size() * num_microbatches_, no_time),
        backward_end_(forward_end_),
        next_(schedule.ranks.size(), 0),
        is_open_(stages.size(), false),
        first_gathered_(schedule.ranks.size(), 0),
        unstored_(first_gathered_),
        free_(first_gathered_),
        ends_{std::vector<double>(schedule.ranks.size(), 0), std::vector<double>(schedule.ranks.size(), 0),
              std::vector<double>(stages.size(), 0), std::vector<double>(schedule.ranks.size(), no_time)} {}

  PassEnds run() {
    for (int rank = static_cast<int>(next_.size()) - 1; rank >= 0; --rank) awake_.push_back(rank);
    while (!awake_.empty()) {
      const int rank = awake_.back();
      awake_.pop_back();
      advance(static_cast<std::size_t>(rank));
    }
    return std::move(ends_);
  }

 private:
  [[nodiscard]] std::size_t slot(std::size_t stage, std::size_t microbatch) const {
    return stage * num_microbatches_ + microbatch;
  }
  [[nodiscard]] double message(std::size_t from, std::size_t to) const {
    return schedule_.rank_of_stage[from] == schedule_.rank_of_stage[to] ? 0 : transfer_seconds_;
  }

  [[nodiscard]] double ready(const CompactPass& pass) const {
    const std::size_t stage = pass.stage;
    switch (pass.kind) {
      case PassKind::forward:
        return stage == 0 ? lane_.begin : forward_end_[slot(stage - 1, pass.microbatch)] + message(stage - 1, stage);
      case PassKind::backward:
      case PassKind::backward_input:
        if (stage + 1 == stages_.size()) return forward_end_[slot(stage, pass.microbatch)];
        return backward_end_[slot(stage + 1, pass.microbatch)] + message(stage + 1, stage);
      case PassKind::backward_weight: return 0;
    }
    return 0;
  }

  void advance(std::size_t rank) {
    const std::vector<CompactPass>& order = schedule_.ranks[rank];
    for (; next_[rank] < order.size(); ++next_[rank]) {
      const CompactPass& pass = order[next_[rank]];
      const double start = ready(pass);
      if (start == no_time) return;
      const double end = ended(rank, std::max(free_[rank], start));
      if (pass.kind == PassKind::forward) {
        forward_end_[slot(pass.stage, pass.microbatch)] = end;
        if (pass.stage + 1U < stages_.size()) wake(pass.stage + 1U, rank);
      } else if (pass.kind != PassKind::backward_weight) {
        backward_end_[slot(pass.stage, pass.microbatch)] = end;
        if (pass.stage > 0) wake(pass.stage - 1U, rank);
      }
    }
  }

  /// The end of the rank's next pass, with its part of the lane.
  double ended(std::size_t rank, double start) {
    const CompactPass& pass = schedule_.ranks[rank][next_[rank]];
    const ClockedStage& stage = stages_[pass.stage];
    const auto kind = static_cast<std::size_t>(pass.kind);
    const double lane_before = ends_.lanes[rank];
    double end = start + stage.seconds[kind];
    if (lane_.has_gathers) end = std::max(end, gathered(rank, stage, kind));
    if (lane_.has_reductions) end = std::max(end, stored(rank, stage, pass));
    free_[rank] = std::max(end, free_[rank]);
    if (computes_weights(pass.kind)) {
      ends_.gradients[pass.stage] = start + stage.least_block_seconds[kind];
      ends_.first_gradients[rank] = std::min(ends_.first_gradients[rank], ends_.gradients[pass.stage]);
      if (lane_.has_reductions && stage.num_blocks > 0) end = std::max(end, reduced(rank, lane_before));
    }
    is_open_[pass.stage] = true;
    return ends_.ranks[rank] = end;
  }

  /// A rank waits until a block's gradient is reduced before it stores it, one block after the one that computed it: of
  /// the last block of a pass, after the first block of the next pass.
  double stored(std::size_t rank, const ClockedStage& stage, const CompactPass& pass) {
    const double before = std::exchange(unstored_[rank], 0);
    const bool goes_by_blocks = lane_.has_gathers || computes_weights(pass.kind);
    free_[rank] = before;
    return !goes_by_blocks || stage.num_blocks < 2
               ? 0
               : before + (stage.num_blocks - 1) * stage.least_block_seconds[static_cast<std::size_t>(pass.kind)];
  }

  /// The pass that was just computed gives the lane the reductions of all its blocks, and its last block waits for all
  /// but the last two. Returns the earliest end of the pass.
  double reduced(std::size_t rank, double lane_before) {
    const CompactPass& pass = schedule_.ranks[rank][next_[rank]];
    const ClockedStage& stage = stages_[pass.stage];
    const double least = stage.least_block_seconds[static_cast<std::size_t>(pass.kind)],
                 first = ends_.gradients[pass.stage];
    const double begin = std::max(lane_before, first);
    const double end = stage.num_blocks > 1 ? begin + (stage.num_blocks - 2) * stage.reduce + least : 0;
    free_[rank] = std::max({free_[rank], end, begin + (stage.num_blocks - 1) * stage.reduce});
    unstored_[rank] = ends_.lanes[rank] = std::max(ends_.lanes[rank], first) + stage.num_blocks * stage.reduce;
    return end;
  }

  [[nodiscard]] static bool computes_weights(PassKind kind) {
    return kind == PassKind::backward || kind == PassKind::backward_weight;
  }

  /// Gathers are issued in the order of the passes, each one unit ahead: all of a pass but the first after the previous
  /// pass has ended, the first one before that pass's last unit. Returns the earliest end of the rank's next pass.
  double gathered(std::size_t rank, const ClockedStage& stage, std::size_t kind) {
    const double free = free_[rank];
    double& lane = ends_.lanes[rank];
    double end = first_gathered_[rank] + stage.num_blocks * stage.least_block_seconds[kind];
    first_gathered_[rank] = 0;
    const std::size_t position = next_[rank];
    const std::vector<CompactPass>& order = schedule_.ranks[rank];
    if (gathers(order[position]) && stage.num_blocks > 1) {
      lane = std::max(lane, free) + (stage.num_blocks - 1) * stage.gather;
      end = std::max(end, lane + stage.least_block_seconds[kind]);
    }
    if (position + 1 == order.size() || order[position + 1].stage == order[position].stage) return end;
    const CompactPass& next = order[position + 1];
    if (!gathers(next) || stages_[next.stage].num_blocks == 0) return end;
    first_gathered_[rank] = lane = std::max(lane, free) + stages_[next.stage].gather;
    return end;
  }

  [[nodiscard]] bool gathers(const CompactPass& pass) const { return lane_.gathers_each_pass || !is_open_[pass.stage]; }

  void wake(std::size_t stage, std::size_t rank) {
    const int other = schedule_.rank_of_stage[stage];
    if (static_cast<std::size_t>(other) != rank) awake_.push_back(other);
  }

  const CompactSchedule& schedule_;
  const std::vector<ClockedStage>& stages_;
  double transfer_seconds_;
  const PassLane& lane_;
  std::size_t num_microbatches_;
  std::vector<double> forward_end_, backward_end_;
  std::vector<std::size_t> next_;
  std::vector<bool> is_open_;           // by stage: it had a pass
  std::vector<double> first_gathered_;  // by rank: the first block of the next pass
  std::vector<double> unstored_;        // by rank: when the last gradient that is not stored is reduced
  std::vector<double> free_;            // by rank: for its next pass
  PassEnds ends_;
  std::vector<int> awake_;
};

}  // namespace

CompactSchedule compact(const Schedule& schedule, BackwardKinds backward) {
  CompactSchedule result{.ranks = {},
                         .rank_of_stage = schedule.rank_of_stage,
                         .num_microbatches = schedule.num_microbatches,
                         .backward = backward};
  for (const ComputeOrder& order : schedule.ranks) {
    std::vector<CompactPass>& passes = result.ranks.emplace_back();
    passes.reserve(order.size());
    for (const Action& action : order)
      passes.push_back({pass_of(action.kind).value(), static_cast<std::uint16_t>(action.stage),
                        static_cast<std::uint32_t>(action.microbatch)});
  }
  return result;
}

PassEnds clocked_ends(const CompactSchedule& schedule, const std::vector<ClockedStage>& stages, double transfer_seconds,
                      const PassLane& lane) {
  return Clock(schedule, stages, transfer_seconds, lane).run();
}

}  // namespace echelon
