#include "plan/bounds/bytes.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace echelon {
namespace {

/// What a stage keeps of a microbatch, as StageCost has it: of its units, between them, and its input.
std::int64_t stash_bytes(const StageLayers& layers, const PlanRecompute& recompute, const LayerCosts& costs) {
  std::int64_t bytes = 0, num_units = 0;
  for_units(layers, *costs.model, recompute_of(recompute), costs.tied, [&](const UnitKind& kind, std::int64_t count) {
    const UnitPasses& passes = costs.of(kind).costs->bytes;
    bytes += count * (passes.stash.num_bytes + passes.input_stash.num_bytes);
    num_units += count;
  });
  return bytes + (num_units - (layers.has_embedding ? 1 : 0)) * costs.boundary_bytes;
}

}  // namespace

const LayerCosts& PlanBytes::layers(const PlanComputation& computation) {
  return costs_->layers(computation.shape, computation.recompute.operations);
}

const PlanStages& PlanBytes::stages(const PlanComputation& computation) {
  return stages_->stages(computation, layers(computation));
}

/// The least persistent memory: all parameters, gradients and states in as many shards as there are data ranks.
const UnitStates& PlanBytes::most_sharded(const PlanShape& shape) {
  if (most_sharded_ == nullptr || shape_ != shape) {
    most_sharded_ = &costs_->traces(shape, {.replicate = 1, .shard = shape.dp, .zero_level = 3});
    shape_ = shape;
  }
  return *most_sharded_;
}

PlanBytes::States PlanBytes::states(const PlanShape& shape, const LayerCosts& layers, const UnitStates& traces) {
  States all = {traces, traces.constant_bytes};
  for (const std::int64_t size : layers.batch_elements)
    all.of_no_unit += shape.num_microbatches * size * size_of(DType::int32);
  return all;
}

std::int64_t PlanBytes::persistent(const States& states, const PlanStages& stages, int rank) {
  const auto index = static_cast<std::size_t>(rank);
  return persistent(states, {.num_blocks = stages.blocks_of_rank[index],
                             .num_mixtures = stages.mixtures_of_rank[index],
                             .is_first = stages.stages.front().rank == rank,
                             .is_last = stages.stages.back().rank == rank});
}

std::int64_t PlanBytes::persistent(const States& states, const RankUnits& units) {
  const auto& [num_blocks, num_mixtures, is_first, is_last] = units;
  const UnitStates& state = states.of_units;
  std::int64_t bytes = states.of_no_unit;
  bytes += state.of_blocks(&UnitState::persistent_bytes, num_blocks, num_mixtures);
  if (is_first) bytes += state.embedding().persistent_bytes;
  if (is_last) bytes += state.head().persistent_bytes;
  const UnitState* const tied_weight = state.tied_weight();
  return bytes + (tied_weight != nullptr && (is_first || is_last) ? tied_weight->persistent_bytes : 0);
}

// All of it; or where checkpoint.snapshot_bytes has no room for that, all but a unit that is not copied any more.
std::int64_t PlanBytes::snapshot(const UnitStates& state, const PlanStages& stages, int rank) const {
  const std::int64_t limit = request_->base.checkpoint.snapshot_bytes;
  std::int64_t sum = 0, largest = 0;
  const auto add = [&](const UnitState& unit, std::int64_t count) {
    sum += count * unit.snapshot_bytes;
    if (count > 0) largest = std::max(largest, unit.snapshot_bytes);
  };
  const bool is_first = stages.stages.front().rank == rank, is_last = stages.stages.back().rank == rank;
  const auto index = static_cast<std::size_t>(rank);
  const std::int64_t num_mixtures = stages.mixtures_of_rank[index];
  if (const std::int64_t num_dense = stages.blocks_of_rank[index] - num_mixtures; num_dense > 0)
    add(state.block(false), num_dense);
  if (num_mixtures > 0) add(state.block(true), num_mixtures);
  add(state.embedding(), is_first ? 1 : 0);
  add(state.head(), is_last ? 1 : 0);
  const UnitState* const tied_weight = is_first || is_last ? state.tied_weight(is_first, is_last) : nullptr;
  if (tied_weight != nullptr) add(*tied_weight, 1);
  state.for_blocks([&](const UnitState& block) { largest = std::max(largest, block.snapshot_bytes); });
  const bool may_stop = limit >= 0 && (sum > limit || state.has_several_blocks());
  return may_stop ? std::min(sum, std::max<std::int64_t>(0, limit - largest)) : sum;
}

namespace {

/// During a pass: what is kept, and the gradient from the next stage. `stage_of`: of a number among all.
template <class StageOf>
std::int64_t held_bytes(const RankStates& rank, const PassState& pass, const StageOf& stage_of) {
  const bool has_flow = pass.kind == PassKind::backward || pass.kind == PassKind::backward_input;
  std::int64_t bytes = has_flow ? stage_of(pass.stage).flow_bytes : 0;
  for (std::size_t i = 0; i < rank.stages.size(); ++i) {
    const StageCost& of = stage_of(rank.stages[i]);
    const HeldMicrobatches& held = pass.held[i];
    bytes += held.stashes * of.stash_bytes + held.input_stashes * of.input_stash_bytes +
             held.gradient_stashes * of.gradient_stash_bytes;
  }
  return bytes;
}

}  // namespace

// A rank's memory use is highest during a pass: what is kept, the gradient from the next stage and what passes between
// units.
const std::vector<PlanBytes::Passing>& PlanBytes::passing(const PlanComputation& computation, const LayerCosts& costs,
                                                          const PlanStages& all) {
  if (number_ == all.number) return passing_;
  number_ = all.number;
  passing_.clear();
  std::array<std::array<std::int64_t, num_pass_kinds>, 2> least_workspace;  // of any block, of those with experts
  for (auto& each : least_workspace) each.fill(std::numeric_limits<std::int64_t>::max());
  costs.for_blocks([&](const UnitCost& block) {
    for (std::size_t kind = 0; kind < num_pass_kinds; ++kind) {
      const std::int64_t bytes = block.costs->bytes.workspace_bytes(kind);
      least_workspace[0][kind] = std::min(least_workspace[0][kind], bytes);
      if (block.kind.layer.has_experts) least_workspace[1][kind] = std::min(least_workspace[1][kind], bytes);
    }
  });
  for (const RankStates& rank : stages_->states(computation.shape, computation.pipeline, request_->base.model)) {
    Passing& peak = passing_.emplace_back();
    for (const PassState& pass : rank.states) {
      const StageCost& stage = all.stages[pass.stage];
      const auto kind = static_cast<std::size_t>(pass.kind);
      const std::int64_t held =
          held_bytes(rank, pass, [&](std::size_t i) -> const StageCost& { return all.stages[i]; });
      std::int64_t num_open = 0, num_open_mixtures = 0;
      for (std::size_t i = 0; i < rank.stages.size(); ++i) {
        const StageCost& of = all.stages[rank.stages[i]];
        num_open += pass.held[i].open * of.num_blocks;
        num_open_mixtures += pass.held[i].open * of.num_mixtures;
      }
      peak.any = std::max(peak.any, held + stage.workspace_bytes[kind]);
      if (stage.num_blocks == 0) continue;
      const bool computes_weights = pass.kind == PassKind::backward || pass.kind == PassKind::backward_weight,
                 in_mixture = stage.num_mixtures == stage.num_blocks;
      const std::int64_t in_block = held + least_workspace[in_mixture ? 1 : 0][kind];
      Passing::Block& of_blocks = peak.blocks[in_mixture ? 1 : 0];
      std::int64_t& of_kind = computes_weights ? of_blocks.weights : of_blocks.forward;
      if (stage.num_blocks > 2) of_kind = std::max(of_kind, in_block);
      count_open(peak, {num_open, num_open_mixtures, in_block, computes_weights, in_mixture});
    }
  }
  return passing_;
}

// In addition to the pass of a block between two others: under ZeRO-3 the block's parameters and those of the next one;
// from ZeRO-2 on the block's gradients and those of the previous one, which are being reduced.
std::int64_t PlanBytes::beside_passes(const PlanChoice& choice, const UnitStates& traces, const Passing& passing) {
  const PlanData& data = choice.data;
  if (num_shards(choice.shape, data) == 1 || data.zero_level < 2) return passing.any;
  const bool gathers = data.zero_level == 3 && data.reshard == ReshardAfterForward::microbatch;
  std::int64_t most = passing.any;
  for (const bool in_mixture : {false, true}) {
    const auto& [forward, weights] = passing.blocks[in_mixture ? 1 : 0];
    if (forward + weights == 0) continue;
    const UnitState& block = in_mixture ? traces.block(true) : traces.block();
    const std::int64_t gathered = gathers ? 2 * block.whole_param_bytes : 0,
                       reduced = traces.converts_gradients ? block.converted_grad_bytes : block.whole_grad_bytes;
    if (forward > 0) most = std::max(most, forward + gathered);
    if (weights > 0) most = std::max(most, weights + gathered + block.whole_grad_bytes + reduced);
  }
  return most;
}

// Where parameters stay gathered, all blocks of a stage with microbatches in flight are; gradients as above.
std::int64_t PlanBytes::gathered(const PlanChoice& choice, const UnitStates& traces, const Passing& passing) {
  const PlanData& data = choice.data;
  if (num_shards(choice.shape, data) == 1 || data.zero_level < 3 || data.reshard == ReshardAfterForward::microbatch)
    return 0;
  std::int64_t most = 0;
  for (const auto& [num_blocks, num_mixtures, bytes, computes_weights, in_mixture] : passing.open) {
    const UnitState& block = in_mixture ? traces.block(true) : traces.block();
    most = std::max(most, bytes + traces.of_blocks(&UnitState::whole_param_bytes, num_blocks, num_mixtures) +
                              (computes_weights ? block.whole_grad_bytes : 0));
  }
  return most;
}

void PlanBytes::count_open(Passing& peak, const Passing::Open& now) {
  Passing::Open &with_most = peak.open[now.computes_weights ? 0 : 1],
                &largest = peak.open[now.computes_weights ? 2 : 3];
  if (std::pair(now.num_blocks, now.bytes) > std::pair(with_most.num_blocks, with_most.bytes)) with_most = now;
  if (std::pair(now.bytes, now.num_blocks) > std::pair(largest.bytes, largest.num_blocks)) largest = now;
}

std::int64_t PlanBytes::of_layout(const PlanChoice& choice, const UnitStates& traces) {
  const PlanComputation computation = {choice.shape, choice.pipeline, choice.recompute};
  const LayerCosts& costs = layers(computation);
  const PlanStages& all = stages_->stages(computation, costs);
  const std::vector<Passing>& at_passes = passing(computation, costs, all);
  const States own = states(choice.shape, costs, traces);
  std::int64_t peak = 0;
  for (int rank = 0; rank < static_cast<int>(at_passes.size()); ++rank) {
    const Passing& passing = at_passes[static_cast<std::size_t>(rank)];
    peak = std::max(
        peak, persistent(own, all, rank) + snapshot(own.of_units, all, rank) +
                  std::max(beside_passes(choice, own.of_units, passing), gathered(choice, own.of_units, passing)));
  }
  return peak;
}

/// As passing() has it of any pass, of kinds of stages alone: a search asks for many pipelines that do not fit.
std::int64_t PlanBytes::of_pipeline(const PlanComputation& computation, std::int64_t enough) {
  const LayerCosts& costs = layers(computation);
  const auto& [of, kinds] = stages_->kinds(computation, costs);
  const States own = states(computation.shape, costs, most_sharded(computation.shape));
  const std::vector<RankStates>& ranks = stages_->states(computation.shape, computation.pipeline, request_->base.model);
  std::int64_t peak = 0;
  for (std::size_t rank = 0; rank < ranks.size() && peak <= enough; ++rank) {
    const RankStates& of_rank = ranks[rank];
    std::int64_t passes = 0;
    for (const PassState& pass : of_rank.states) {
      const auto stage = [&, &of = of, &kinds = kinds](std::size_t i) -> const StageCost& {
        return kinds[of.kinds[i]];
      };
      passes = std::max(passes, held_bytes(of_rank, pass, stage) +
                                    stage(pass.stage).workspace_bytes[static_cast<std::size_t>(pass.kind)]);
    }
    peak = std::max(peak, passes + persistent(own, {.num_blocks = of.blocks_of_rank[rank],
                                                    .num_mixtures = of.mixtures_of_rank[rank],
                                                    .is_first = of.ranks.front() == static_cast<int>(rank),
                                                    .is_last = of.ranks.back() == static_cast<int>(rank)}));
  }
  return peak;
}

std::int64_t PlanBytes::of_any_schedule(const PlanComputation& computation) {
  const LayerCosts& costs = layers(computation);
  const StageRanks& of = stages_->ranks(computation, *costs.model);
  std::vector<std::int64_t> kept_by_kind;
  kept_by_kind.reserve(of.firsts.size());
  for (const std::size_t first : of.firsts)
    kept_by_kind.push_back(stash_bytes((*of.stages)[first], computation.recompute, costs));
  const States own = states(computation.shape, costs, most_sharded(computation.shape));
  const std::int64_t in_flight = holds_all(computation.pipeline.schedule) ? computation.shape.num_microbatches : 1;
  std::int64_t peak = 0;
  for (const StageRanks::RankKind& each : of.rank_kinds) {
    std::int64_t kept = 0;
    for (std::size_t kind = 0; kind < kept_by_kind.size(); ++kind)
      kept += each.num_stages[kind] * in_flight * kept_by_kind[kind];
    const auto rank = static_cast<std::size_t>(each.rank);
    peak = std::max(peak, kept + persistent(own, {.num_blocks = of.blocks_of_rank[rank],
                                                  .num_mixtures = of.mixtures_of_rank[rank],
                                                  .is_first = each.is_first,
                                                  .is_last = each.is_last}));
  }
  return peak;
}

std::int64_t PlanBytes::persistent_of_all_ranks(const PlanShape& shape, const LayerCosts& layers) {
  const ModelSpec& model = request_->base.model;
  const States own = states(shape, layers, most_sharded(shape));
  std::int64_t num_mixtures = 0;
  for_units({.num_layers = model.num_hidden_layers}, model, {}, layers.tied,
            [&](const UnitKind& kind, std::int64_t count) { num_mixtures += kind.layer.has_experts ? count : 0; });
  const States of_units = {own.of_units, 0};
  return shape.pp * own.of_no_unit +
         persistent(
             of_units,
             {.num_blocks = model.num_hidden_layers, .num_mixtures = num_mixtures, .is_first = true, .is_last = true});
}

std::int64_t PlanBytes::of_any_layout() const {
  const RunConfig& base = request_->base;
  const ShardOptions options = shard_options(base);
  const bool trains_all = !base.lora.exists() && !base.moe.freeze_router;
  std::int64_t of_parameter = size_of(options.dtype);
  if (trains_all) of_parameter += size_of(options.grad_dtype) + 2 * size_of(options.moments_dtype);
  if (trains_all && options.has_master()) of_parameter += size_of(options.master_dtype());
  return base.model.num_parameters() * of_parameter / request_->num_devices;
}

std::int64_t PlanBytes::of_any_pipeline(const PlanShape& shape) {
  const UnitStates& state = most_sharded(shape);
  const ModelSpec& model = request_->base.model;
  const std::int64_t num_blocks = model.num_hidden_layers, most_blocks = (num_blocks + shape.pp - 1) / shape.pp;
  std::int64_t all = 0;
  for_units({.num_layers = num_blocks, .has_embedding = true, .has_head = true}, model, {}, TiedWeight::none,
            [&](const UnitKind& kind, std::int64_t count) { all += count * state.of(kind).persistent_bytes; });
  // When the last stage goes back for the first time, every block has at least its input.
  const std::int64_t T = request_->base.training.seq_len / shape.cp,
                     elements =
                         shape.micro_batch_size * T / (shape.sequence_parallel ? shape.tp : 1) * model.hidden_size,
                     input = elements * size_of(request_->base.training.dtype);
  return state.constant_bytes +
         std::max(most_blocks * (state.block().persistent_bytes + input), (all + num_blocks * input) / shape.pp);
}

}  // namespace echelon
