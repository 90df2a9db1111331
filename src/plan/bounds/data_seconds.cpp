#include "plan/bounds/data_seconds.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace echelon {
namespace {

constexpr auto of_forward = static_cast<std::size_t>(PassKind::forward),
               of_backward = static_cast<std::size_t>(PassKind::backward),
               of_weights = static_cast<std::size_t>(PassKind::backward_weight);

bool is_sharded(const PlanChoice& choice, std::int64_t level) {
  return num_shards(choice.shape, choice.data) > 1 && choice.data.zero_level >= level;
}

double reduced(const UnitSeconds& unit) { return unit.reduce + unit.reduce_parts; }

double core_seconds_of(const UnitState& unit, ActionKind kind) {
  const auto found = unit.costs.find(kind);
  return found == unit.costs.end() ? 0 : found->second.core_seconds;
}

/// A lower bound for a stage's blocks in a step, of what all and the longest of them take. A pass may find the block
/// that the previous pass has left gathered. Where parameters stay gathered for the backward pass, it finds all blocks
/// of a microbatch that is still in flight. Where units are gathered further ahead, they may also stay for later
/// passes: then each is counted once.
double gathers_of_blocks(const PlanData& data, const StagePasses& passes, double all, double longest) {
  if (data.zero_level < 3 || data.reshard == ReshardAfterForward::step || data.prefetch_depth > 1) return all;
  if (data.reshard == ReshardAfterForward::never) return passes.openings * all - passes.open_behind_own * longest;
  return passes.all * all - passes.behind_own * longest;
}

double of_stage(const StateCosts& state, double UnitSeconds::*seconds, const StageCost& stage) {
  return state.of_blocks(seconds, stage.num_blocks, stage.num_mixtures);
}
double longest_of_stage(const StateCosts& state, double UnitSeconds::*seconds, const StageCost& stage) {
  return state.longest(seconds, stage.num_blocks, stage.num_mixtures);
}
double of_rank(const PlanCosts& costs, double UnitSeconds::*seconds, std::size_t rank) {
  return costs.state.of_blocks(seconds, costs.stages.blocks_of_rank[rank], costs.stages.mixtures_of_rank[rank]);
}
double reductions_of_stage(const StateCosts& state, const StageCost& stage) {
  return of_stage(state, &UnitSeconds::reduce, stage) + of_stage(state, &UnitSeconds::reduce_parts, stage);
}
double longest_of_any(const StateCosts& state, double UnitSeconds::*seconds) {
  return std::max(state.dense.*seconds, state.mixture.*seconds);
}

// The collectives of a rank's data axes share a lane: all but the last one of them run before the norm, and reductions
// after the first gradient, those over replicas among them. Under ZeRO-1 and 2 parameters are gathered after it.
double lane_seconds(const PlanCosts& costs, const PassEnds& ends) {
  const PlanData& data = costs.choice.data;
  if (!is_sharded(costs.choice, 2)) return 0;
  const auto m = static_cast<double>(costs.choice.shape.num_microbatches);
  std::vector<double> gathers(costs.stages.blocks_of_rank.size(), 0);
  for (std::size_t i = 0; data.zero_level == 3 && i < costs.stages.stages.size(); ++i) {
    const StageCost& stage = costs.stages.stages[i];
    gathers[static_cast<std::size_t>(stage.rank)] +=
        gathers_of_blocks(data, costs.passes[i], of_stage(costs.state, &UnitSeconds::gather, stage),
                          longest_of_stage(costs.state, &UnitSeconds::gather, stage));
  }
  double longest = 0;
  for (std::size_t rank = 0; rank < gathers.size(); ++rank) {
    const double first_gradient = ends.first_gradients.empty() ? 0 : ends.first_gradients[rank];
    const double reductions =
        m * of_rank(costs, &UnitSeconds::reduce, rank) + of_rank(costs, &UnitSeconds::reduce_parts, rank);
    longest = std::max(longest, std::max(gathers[rank], first_gradient) + reductions);
  }
  return longest - longest_of_any(costs.state, &UnitSeconds::reduce);
}

/// The longest that a unit may take in the last pass. With a shorter pass its reduction starts earlier, never later.
double longest_pass(const UnitCost& unit, BackwardKinds kinds) {
  double seconds = kinds == BackwardKinds::split ? 0 : unit.seconds[of_backward];
  if (kinds != BackwardKinds::fused) seconds = std::max(seconds, unit.seconds[of_weights]);
  return seconds;
}

/// A stage's gradients are reduced after its last pass, from ZeRO-2 on those of this pass, and over replicas. Those of
/// a rank come one after the other.
double reductions_after_passes(const PlanCosts& costs, const PassEnds& ends) {
  if (ends.gradients.empty()) return 0;
  std::vector<std::size_t> stages(ends.gradients.size());
  std::iota(stages.begin(), stages.end(), std::size_t{0});
  std::sort(stages.begin(), stages.end(),
            [&](std::size_t a, std::size_t b) { return ends.gradients[a] < ends.gradients[b]; });
  std::vector<double> lanes(ends.ranks.size(), 0);
  for (const std::size_t each : stages) {
    const StageCost& stage = costs.stages.stages[each];
    double& lane = lanes[static_cast<std::size_t>(stage.rank)];
    lane = std::max(lane, ends.gradients[each]) + reductions_of_stage(costs.state, stage);
  }
  return *std::max_element(lanes.begin(), lanes.end());
}

/// By when the gradients of all ranks are reduced: those of the units of a rank's last pass one after the other, each
/// from when it was computed.
double reductions_end(const PlanCosts& costs, const PassEnds& ends) {
  const std::vector<double>& last_passes = ends.ranks;
  const PlanStages& all = costs.stages;
  const StateCosts& state = costs.state;
  const double reduce = reduced(state.block);
  const double most_reduced =
      longest_of_any(state, &UnitSeconds::reduce) + longest_of_any(state, &UnitSeconds::reduce_parts);
  const double waits = (is_sharded(costs.choice, 3) ? longest_of_any(state, &UnitSeconds::gather) : 0) +
                       (is_sharded(costs.choice, 2) ? most_reduced : 0);
  const double embedding_pass = longest_pass(costs.layers.embedding(), all.backward_kinds);
  double unit_pass = waits;
  costs.layers.for_blocks(
      [&](const UnitCost& block) { unit_pass = std::max(unit_pass, longest_pass(block, all.backward_kinds)); });
  // The embedding's gradients come last on their rank, unless weight gradients of another stage of it are deferred.
  const bool ends_with_embedding = all.backward_kinds == BackwardKinds::fused || costs.choice.pipeline.num_virtual == 1;
  // The gradients of the last pass's blocks, of whichever stage, come no closer to each other than one pass of a block.
  std::vector<std::int64_t> fewest(last_passes.size(), std::numeric_limits<std::int64_t>::max());  // blocks of a stage
  std::vector<double> least_queued(last_passes.size(), std::numeric_limits<double>::infinity());
  for (const StageCost& stage : all.stages) {
    const auto rank = static_cast<std::size_t>(stage.rank);
    fewest[rank] = std::min(fewest[rank], stage.num_blocks);
    const double since_first = static_cast<double>(std::max<std::int64_t>(0, stage.num_blocks - 1)) * unit_pass +
                               std::max(waits, embedding_pass);
    least_queued[rank] = std::min(least_queued[rank], reductions_of_stage(state, stage) - since_first);
  }
  double end = std::max(lane_seconds(costs, ends), reductions_after_passes(costs, ends));
  for (const double lane : ends.lanes) end = std::max(end, lane);
  for (std::size_t rank = 0; rank < last_passes.size(); ++rank) {
    const bool has_embedding = static_cast<int>(rank) == all.stages.front().rank;
    // The last block's reduction starts when its pass has ended, or when the gathers before it have, for which the
    // embedding's pass waits too.
    const double of_last = fewest[rank] > 0 ? reduce - (has_embedding ? embedding_pass : 0) : 0;
    const double queued = std::max(least_queued[rank], of_last);
    const double behind =
        has_embedding && ends_with_embedding ? reduced(state.embedding) + reduced(state.tied_weight) : 0;
    end = std::max(end, last_passes[rank] + std::max(0.0, queued) + behind);
  }
  return end;
}

/// Every rank updates its units and under ZeRO-1 and 2 gathers each, one after the other on lanes of their own.
double update_seconds(const PlanCosts& costs) {
  const StateCosts& state = costs.state;
  const bool gathers = is_sharded(costs.choice, 1) && costs.choice.data.zero_level < 3;
  const bool is_tied = state.traces->tied_weight() != nullptr;
  double longest = 0;
  for (std::size_t rank = 0; rank < costs.stages.blocks_of_rank.size(); ++rank) {
    double update = of_rank(costs, &UnitSeconds::update, rank), gather = of_rank(costs, &UnitSeconds::gather, rank),
           last_gather = state.block.gather;
    const auto add = [&](const UnitSeconds& unit) {
      update += unit.update;
      gather += unit.gather;
      last_gather = std::min(last_gather, unit.gather);
    };
    const bool has_embedding = static_cast<int>(rank) == costs.stages.stages.front().rank,
               has_head = static_cast<int>(rank) == costs.stages.stages.back().rank;
    if (has_embedding) add(state.embedding);
    if (has_head) add(state.head);
    if ((has_embedding || has_head) && is_tied) add(state.tied_weight);
    longest = std::max(longest, gathers ? std::max(update + last_gather, gather) : update);
  }
  return longest;
}

}  // namespace

// Under ZeRO-3 a pass waits for gathers. Those of its first two blocks may precede it, while its rank waits for its
// input. Of n blocks n - 2 are gathered between the end of the first one and the start of the last one, one after the
// other. Where weight gradients are computed, the lane takes the reduction of a block after the gather of the next
// block and before the one after that, so it has n - 2 of both.
std::vector<PassWait> waits_of(const PlanCosts& costs) {
  std::vector<PassWait> waits;
  const PlanData& data = costs.choice.data;
  if (!is_sharded(costs.choice, 3) || data.reshard == ReshardAfterForward::step || data.prefetch_depth > 1)
    return waits;
  const auto m = static_cast<double>(costs.choice.shape.num_microbatches);
  for (std::size_t i = 0; i < costs.stages.stages.size(); ++i)
    for (std::size_t kind = 0; kind < num_pass_kinds; ++kind) {
      const StageCost& stage = costs.stages.stages[i];
      if (stage.num_blocks < 2) continue;
      if (data.reshard == ReshardAfterForward::never && (kind != of_forward || costs.passes[i].openings < m)) continue;
      const auto all_but_two = [&](double UnitSeconds::*each) {
        return of_stage(costs.state, each, stage) - 2 * longest_of_stage(costs.state, each, stage);
      };
      const double between =
          stage.block_seconds[kind] - stage.first_block->seconds[kind] - stage.last_block->seconds[kind];
      const bool reduces = kind == of_backward || kind == of_weights;
      const double seconds =
          all_but_two(&UnitSeconds::gather) + (reduces ? all_but_two(&UnitSeconds::reduce) : 0) - between;
      if (seconds > 0) waits.push_back({i, kind, seconds});
    }
  return waits;
}

PassLane lane_of(const PlanCosts& costs) {
  const PlanData& data = costs.choice.data;
  PassLane lane;
  lane.has_reductions = is_sharded(costs.choice, 2) && costs.state.block.reduce > 0;
  lane.has_gathers = is_sharded(costs.choice, 3) && costs.state.block.gather > 0 && data.prefetch_depth == 1;
  lane.gathers_each_pass = data.reshard == ReshardAfterForward::microbatch;
  return lane;
}

// Under ZeRO-3 no rank computes a block before the first rank has gathered the embedding and its first block, one after
// the other.
double first_gathers(const PlanCosts& costs) {
  if (!is_sharded(costs.choice, 3)) return 0;
  const double embedding = costs.state.embedding.gather + costs.state.tied_weight.gather;
  if (costs.stages.stages.front().num_blocks == 0) return embedding;
  return std::max(embedding, embedding + costs.state.block.gather - costs.layers.embedding().seconds[of_forward]);
}

// A single rank computes all blocks forward and then backward, of one microbatch (1F1B) or of all (breadth-first), so
// the lane is known through the whole phase. In the forward phase the last block waits for the gathers of all blocks.
// In the backward phase the first reduction waits for the first block's pass. After it come the gathers of all but the
// first two blocks and all reductions but the last two. In the last phase the sums over replicas follow, except for the
// last four, each two passes after its reduction. The last block waits for all of these. All of this is for gathers
// that are one unit ahead. Parameters that stay gathered are not gathered again in the backward phase, or at all.
double single_rank_end(const PlanCosts& costs) {
  const auto& [choice, stages, layers, state, passes] = costs;
  const PlanData& data = choice.data;
  const bool breadth_first = choice.pipeline.schedule == PipelineSchedule::looped_bfs;
  const bool gathers = is_sharded(costs.choice, 3) && data.prefetch_depth == 1;
  if (!gathers || (!breadth_first && choice.pipeline.schedule != PipelineSchedule::one_f_one_b)) return 0;
  const double num_phases = breadth_first ? 1 : static_cast<double>(choice.shape.num_microbatches);
  const double num_together = static_cast<double>(choice.shape.num_microbatches) / num_phases;
  double num_blocks = 0, gathers_of_all = 0, reductions = 0, reductions_of_parts = 0, forwards = 0, backwards = 0;
  std::array<double, num_pass_kinds> least_of_block;
  least_of_block.fill(std::numeric_limits<double>::infinity());
  for (const StageCost& stage : stages.stages) {
    const auto n = static_cast<double>(stage.num_blocks);
    num_blocks += n;
    // For the next microbatch: one block alone, or all.
    const bool stays = stage.num_blocks <= 1 || data.reshard != ReshardAfterForward::microbatch;
    gathers_of_all += (stays ? 1 : num_together) * of_stage(state, &UnitSeconds::gather, stage);
    reductions += num_together * of_stage(state, &UnitSeconds::reduce, stage);
    reductions_of_parts += of_stage(state, &UnitSeconds::reduce_parts, stage);
    forwards += num_together * stage.seconds[of_forward];
    backwards += num_together * stage.seconds[of_backward];
    for (std::size_t kind = 0; stage.num_blocks > 0 && kind < num_pass_kinds; ++kind)
      least_of_block[kind] = std::min(least_of_block[kind], stage.least_block_seconds[kind]);
  }
  const UnitState& block = state.traces->block();
  backwards += num_together * num_blocks *
               (block.costs.at(ActionKind::open_gradients).compute_seconds() +
                block.costs.at(ActionKind::store_gradients).compute_seconds());
  const double embedding = state.embedding.gather + state.tied_weight.gather;
  const double forth = std::max(forwards + std::max(0.0, state.block.gather - layers.embedding().seconds[of_forward]),
                                gathers_of_all + least_of_block[of_forward] + layers.head().seconds[of_forward]);
  const double bottom = least_of_block[of_backward] + layers.embedding().seconds[of_backward];
  const double gathers_behind_first = data.reshard == ReshardAfterForward::microbatch
                                          ? gathers_of_all - 2 * longest_of_any(state, &UnitSeconds::gather)
                                          : 0;
  const double lane = layers.head().seconds[of_backward] + least_of_block[of_backward] + gathers_behind_first +
                      reductions - 2 * longest_of_any(state, &UnitSeconds::reduce) + bottom;
  const double back = std::max(backwards, lane);
  const double last_back =
      std::max(back, lane + std::max(0.0, reductions_of_parts - 4 * longest_of_any(state, &UnitSeconds::reduce_parts)));
  const double later_forth = data.reshard == ReshardAfterForward::step ? forwards : forth;
  return embedding + forth + (num_phases - 1) * (back + later_forth) + last_back;
}

// All ranks sum the norm of what was reduced, update, and sum the loss.
double step_end(const PlanCosts& costs, const PassEnds& ends) {
  double squares = 0;
  for (std::size_t rank = 0; rank < costs.stages.blocks_of_rank.size(); ++rank)
    squares = std::max(squares, of_rank(costs, &UnitSeconds::squares, rank));
  return reductions_end(costs, ends) + squares + costs.state.scalar_seconds + update_seconds(costs) +
         costs.state.scalar_seconds;
}

double state_core_seconds(const PlanCosts& costs) {
  const PlanData& data = costs.choice.data;
  const UnitStates& state = *costs.state.traces;
  const auto m = static_cast<double>(costs.choice.shape.num_microbatches);
  const double update = core_seconds_of(state.block(), ActionKind::update);
  const double gather = is_sharded(costs.choice, 1) ? core_seconds_of(state.block(), ActionKind::gather_parameters) : 0;
  const double reduce =
      reduces_gradients(costs.choice.shape, data) ? core_seconds_of(state.block(), ActionKind::reduce_gradients) : 0;
  const double reductions = is_sharded(costs.choice, 2) ? m : 1;
  double sum =
      core_seconds_of(state.embedding(), ActionKind::update) + core_seconds_of(state.head(), ActionKind::update);
  for (std::size_t i = 0; i < costs.stages.stages.size(); ++i) {
    const auto num_blocks = static_cast<double>(costs.stages.stages[i].num_blocks);
    if (num_blocks > 0)
      sum += num_blocks * (update + reductions * reduce) +
             gathers_of_blocks(data, costs.passes[i], num_blocks * gather, gather);
  }
  return sum;
}

}  // namespace echelon
