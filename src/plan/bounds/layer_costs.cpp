#include "plan/bounds/layer_costs.h"

#include "blueprint/lifetimes.h"
#include "spec/groups.h"

#include <algorithm>

namespace echelon {
namespace {

// Two ranks of two stages each, so that no rank has both ends of the model: embedding | block | two blocks, the first
// one formed again | head.
constexpr int embedding_stage = 0, block_stage = 1, blocks_stage = 2, head_stage = 3;

RunConfig small_config(RunConfig config, const BlockOperations& recomputed) {
  config.model.num_hidden_layers = 3;
  config.parallelism.pipeline_parallel_degree = 2;
  config.parallelism.pipeline_parallel_layout = {.counts = {1, 1, 2, 1}, .letters = {}};
  config.parallelism.virtual_stages = 2;
  config.training.recompute = recomputed;
  config.training.recompute_method = RecomputeMethod::block;
  config.training.recompute_num_layers = recomputed.empty() ? 0 : 1;
  return config;
}

const Schedule& small_schedule() {
  static const Schedule schedule = looped_bfs_schedule(2, 1, 2);
  return schedule;
}

int rank_of_stage(const MeshShape& mesh, int stage) {
  Coordinates coordinates{};
  coordinates[static_cast<std::size_t>(Axis::pp)] = stage % 2;
  return mesh.rank_of(coordinates);
}

constexpr ActionKind pass_actions[num_pass_kinds] = {ActionKind::forward, ActionKind::backward,
                                                     ActionKind::backward_input, ActionKind::backward_weight};

StateCosts least_of(const StateCosts& a, const StateCosts& b) {
  const auto of_unit = [](const UnitSeconds& x, const UnitSeconds& y) {
    return UnitSeconds{.reduce = std::min(x.reduce, y.reduce),
                       .reduce_parts = std::min(x.reduce_parts, y.reduce_parts),
                       .gather = std::min(x.gather, y.gather),
                       .update = std::min(x.update, y.update),
                       .clear = std::min(x.clear, y.clear),
                       .squares = std::min(x.squares, y.squares)};
  };
  return {.traces = a.traces,
          .embedding = of_unit(a.embedding, b.embedding),
          .block = of_unit(a.block, b.block),
          .head = of_unit(a.head, b.head),
          .tied_weight = of_unit(a.tied_weight, b.tied_weight),
          .scalar_seconds = std::min(a.scalar_seconds, b.scalar_seconds)};
}

/// All units of a part go forward and back, the gradients of the weights formed by two microbatches one after the
/// other.
Program passes_of(const ModelPart& part, const std::vector<ActionKind>& kinds) {
  Program program = {{.kind = ActionKind::clear_gradients, .id = 0}};
  for (const ActionKind kind : kinds)
    for (const int microbatch : {0, 1})
      for (const StagePart& each : part.stages)
        for (int i = 0; i < each.stage->num_units(); ++i) {
          const int unit = kind == ActionKind::forward ? i : each.stage->num_units() - 1 - i;
          program.push_back({.kind = kind,
                             .stage = each.index,
                             .microbatch = microbatch,
                             .unit = unit,
                             .id = static_cast<int>(program.size())});
        }
  return program;
}

unsigned bits_of(const BlockOperations& operations) {
  unsigned bits = 0;
  for (const BlockOperation each : {BlockOperation::qkv_proj, BlockOperation::qk_norm, BlockOperation::core_attn,
                                    BlockOperation::o_proj, BlockOperation::mlp})
    bits = 2 * bits + (operations.contain(each) ? 1 : 0);
  return bits;
}

}  // namespace

CostTable::CostTable(const PlanSpace& space, const PlanRequest& request)
    : space_(&space), request_(&request), timer_(request.machine, request.num_devices), orders_(space, request) {}

const LayerCosts& CostTable::layers(const PlanShape& shape, const BlockOperations& recomputed) {
  const LayerKey key = {shape.tp, shape.sequence_parallel, shape.micro_batch_size, bits_of(recomputed)};
  const auto found = layers_.find(key);
  return found != layers_.end() ? found->second : layers_.emplace(key, traced_layers(shape, recomputed)).first->second;
}

const LayerCosts& CostTable::layers(const PlanShape& shape, const BlockOperations& recomputed, const MeshShape& mesh) {
  const LayerCosts& closest = layers(shape, recomputed);
  if (shape.tp == 1 || request_->machine.host) return closest;
  const LayerKey key = {shape.tp, shape.sequence_parallel, shape.micro_batch_size, bits_of(recomputed)};
  const auto [known, is_new] = placed_layers_.try_emplace({key, mesh.stride(Axis::tp)}, &closest);
  if (!is_new) return *known->second;
  LayerCosts placed = closest;
  bool is_slower = false;
  for (UnitCost* const unit : {&placed.embedding, &placed.block, &placed.recomputed_block, &placed.head})
    for (std::size_t kind = 0; kind < num_pass_kinds; ++kind) {
      const double seconds = timer_.seconds(unit->first[kind], mesh);
      is_slower = is_slower || seconds > unit->seconds[kind];
      unit->seconds[kind] = seconds;
    }
  if (is_slower) known->second = &slower_layers_.emplace_back(std::move(placed));
  return *known->second;
}

const StateTraces& CostTable::traces(const PlanShape& shape, const PlanData& data) {
  const TraceKey key = {shape.tp, shape.sequence_parallel, data.replicate, data.shard, data.zero_level};
  const auto found = traces_.find(key);
  return found != traces_.end() ? found->second : traces_.emplace(key, traced_state(shape, data)).first->second;
}

const StateCosts& CostTable::state_of(const DataOrder& at) {
  const auto& [shape, data, order] = at;
  const StateKey key = {
      {shape.tp, shape.sequence_parallel, data.replicate, data.shard, data.zero_level}, shape.pp, order};
  const auto found = states_.find(key);
  if (found != states_.end()) return found->second;
  const std::vector<AxisOrder>& orders = orders_.of(shape, data);
  StateCosts costs = order ? costs_of_state(shape, data, *order) : state(shape, data, orders.front());
  if (!order)
    for (std::size_t i = 1; i < orders.size(); ++i) costs = least_of(costs, state(shape, data, orders[i]));
  return states_.emplace(key, costs).first->second;
}

LayerCosts CostTable::traced_layers(const PlanShape& shape, const BlockOperations& recomputed) {
  PlanShape alone = shape;
  alone.dp = 1;
  const RunConfig config = small_config(space_->config_of({alone, {}, {}, {}}), recomputed);
  const MeshShape mesh = config.mesh_shape();
  const auto least_seconds = [&](const ActionCost& cost) {
    double least = no_time;
    for (const MeshShape& each : orders_.of_tensor_axis(shape.tp)) least = std::min(least, timer_.seconds(cost, each));
    return least;
  };

  LayerCosts costs;
  for (const int pipeline_rank : {0, 1}) {
    const int rank = rank_of_stage(mesh, pipeline_rank);
    ModelPart part = make_model_part(config, small_schedule(), rank);
    costs.dtype = part.options.dtype;
    costs.boundary_elements = part.boundary_sizes().num_elements();
    costs.boundary_bytes = aligned(costs.boundary_elements * size_of(costs.dtype));
    const auto unit_of = [&](const Action& action) -> UnitCost* {
      if (action.stage == embedding_stage) return &costs.embedding;
      if (action.stage == head_stage) return &costs.head;
      if (action.stage == blocks_stage) return action.unit == 0 ? &costs.recomputed_block : &costs.block;
      return nullptr;
    };
    const auto take_passes = [&](const RankTrace& trace, const Program& program) {
      for (const Action& action : program) {
        UnitCost* unit = unit_of(action);
        if (unit == nullptr) continue;
        const auto kind = static_cast<std::size_t>(
            std::find(std::begin(pass_actions), std::end(pass_actions), action.kind) - std::begin(pass_actions));
        const CallTrace& call = trace.of(action);
        unit->workspace_bytes[kind] = std::max(unit->workspace_bytes[kind], call.workspace_bytes);
        (action.microbatch == 0 ? unit->first : unit->later)[kind] = timer_.cost_of(call);
        if (action.microbatch == 0) unit->seconds[kind] = least_seconds(unit->first[kind]);
      }
    };
    const Program fused = passes_of(part, {ActionKind::forward, ActionKind::backward});
    take_passes(RankTrace(config, rank, part, fused), fused);
    const Program split =
        passes_of(part, {ActionKind::forward, ActionKind::backward_input, ActionKind::backward_weight});
    const RankTrace trace(config, rank, part, split);
    take_passes(trace, split);
    const auto take = [&](UnitCost& unit, int stage) {
      unit.input_stash_bytes = trace.input_stash_bytes(stage);
      unit.stash_bytes = trace.stash_bytes(stage) - unit.input_stash_bytes;
      unit.gradient_stash_bytes = trace.gradient_stash_bytes(stage);
    };
    if (pipeline_rank == 0) {
      take(costs.embedding, embedding_stage);
      // Two blocks and what is kept between them; the other rank has one of them alone.
      take(costs.block, blocks_stage);
    } else {
      take(costs.recomputed_block, block_stage);
      take(costs.head, head_stage);
    }
  }
  costs.block.stash_bytes -= costs.recomputed_block.stash_bytes + costs.boundary_bytes;
  costs.block.input_stash_bytes -= costs.recomputed_block.input_stash_bytes;
  costs.block.gradient_stash_bytes -= costs.recomputed_block.gradient_stash_bytes;
  return costs;
}

namespace {

/// What clipping does for one unit: the squares of its gradients. Their sum over all ranks and the factor are once for
/// all units.
CallTrace squares_of(const CallTrace& clip) {
  CallTrace squares;
  for (const OpRecord& operation : clip.operations())
    if (operation.kind != OpKind::gradient_factor) squares.events.emplace_back(operation);
  return squares;
}

CallTrace factor_of(const CallTrace& clip) {
  CallTrace factor;
  for (const OpRecord& operation : clip.operations())
    if (operation.kind == OpKind::gradient_factor) factor.events.emplace_back(operation);
  return factor;
}

/// What is done to a unit of a stage, alone.
void trace_unit(const RunConfig& config, int rank, ModelPart& part, std::size_t stage, std::size_t unit,
                CostTimer& timer, UnitState& state) {
  ModelPart alone = {
      .options = part.options, .pipeline_rank = part.pipeline_rank, .rank_of_stage = part.rank_of_stage, .stages = {}};
  StagePart& from = part.stages[stage];
  alone.stages.push_back({.index = from.index, .layers = from.layers, .stage = std::move(from.stage), .units = {}});
  alone.stages.front().units.push_back(std::move(from.units[unit]));
  const ShardedUnit& own = alone.stages.front().units.front();
  Program program = {{.kind = ActionKind::clear_gradients, .id = 0}, {.kind = ActionKind::clip, .id = 1}};
  const auto add = [&](ActionKind kind) {
    program.push_back(
        {.kind = kind, .stage = from.index, .microbatch = 0, .unit = 0, .id = static_cast<int>(program.size())});
  };
  for (const ActionKind kind :
       {ActionKind::open_gradients, ActionKind::reduce_gradients, ActionKind::store_gradients, ActionKind::update})
    add(kind);
  if (own.options().reduces_parts) add(ActionKind::reduce_parts);
  if (own.options().level > 0) add(ActionKind::gather_parameters);
  if (own.sums_replicas()) add(ActionKind::sum_replicas);
  if (static_cast<int>(unit) == alone.stages.front().stage->num_units()) add(ActionKind::sum_tied);
  const RankTrace trace(config, rank, alone, program);
  for (const Action& action : program) state.costs[action.kind] = timer.cost_of(trace.of(action));
  state.costs[ActionKind::clip] = timer.cost_of(squares_of(trace.of(program[1])));
  state.sums_replicas = own.sums_replicas();
  for (const Bucket& bucket : own.buckets()) {
    state.whole_param_bytes += aligned(bucket.num_elements * size_of(own.options().dtype));
    state.whole_grad_bytes += aligned(bucket.num_elements * size_of(own.options().grad_dtype));
    if (own.options().converts_gradients())
      state.converted_grad_bytes += aligned(bucket.num_elements * size_of(own.options().reduce_dtype));
  }
  from.stage = std::move(alone.stages.front().stage);
  from.units[unit] = std::move(alone.stages.front().units.front());
}

}  // namespace

StateTraces CostTable::traced_state(const PlanShape& shape, const PlanData& data) {
  const RunConfig config = small_config(space_->config_of({shape, {}, {}, data}), {});
  const MeshShape mesh = config.mesh_shape();
  StateTraces costs;
  for (const int pipeline_rank : {0, 1}) {
    const int rank = rank_of_stage(mesh, pipeline_rank);
    ModelPart part = make_model_part(config, small_schedule(), rank);
    costs.converts_gradients = shard_options(config).converts_gradients();
    const auto state_of = [&](int stage, int unit) -> UnitState* {
      const bool is_tied = unit == part.stage(stage).stage->num_units();
      if (is_tied) return pipeline_rank == 0 ? &costs.tied_weight : &costs.tied_copy;
      if (stage == embedding_stage) return &costs.embedding;
      if (stage == head_stage) return &costs.head;
      return stage == block_stage ? &costs.block : nullptr;
    };
    costs.constant_bytes = 0;
    for (const PlannedBuffer& buffer : persistent_buffers(part, 0)) {
      const bool is_of_unit = buffer.key.role <= BufferRole::v;
      if (!is_of_unit) {
        costs.constant_bytes += buffer.num_bytes;
      } else if (UnitState* unit = state_of(buffer.key.stage, buffer.key.index); unit != nullptr) {
        unit->persistent_bytes += buffer.num_bytes;
      }
    }
    const Program clip = {{.kind = ActionKind::clip, .id = 0}};
    const RankTrace binds_all(config, rank, part, clip);
    costs.factor_seconds = timer_.cost_of(factor_of(binds_all.of(clip.front()))).compute_seconds();
    for (std::size_t stage = 0; stage < part.stages.size(); ++stage)
      for (std::size_t unit = 0; unit < part.stages[stage].units.size(); ++unit)
        if (UnitState* state = state_of(part.stages[stage].index, static_cast<int>(unit)); state != nullptr)
          trace_unit(config, rank, part, stage, unit, timer_, *state);
  }
  return costs;
}

StateCosts CostTable::costs_of_state(const PlanShape& shape, const PlanData& data, const AxisOrder& order) {
  const MeshShape mesh = space_->mesh_of(shape, data, order);
  StateCosts costs;
  costs.traces = &traces(shape, data);
  const auto seconds_of = [&](const UnitState& unit) {
    const auto of = [&](ActionKind kind) {
      const auto found = unit.costs.find(kind);
      return found == unit.costs.end() ? 0.0 : timer_.seconds(found->second, mesh);
    };
    return UnitSeconds{.reduce = shape.dp > 1 ? of(ActionKind::reduce_gradients) : 0,
                       .reduce_parts = of(ActionKind::reduce_parts),
                       .gather = of(ActionKind::gather_parameters),
                       .update = of(ActionKind::update),
                       .clear = of(ActionKind::clear_gradients),
                       .squares = of(ActionKind::clip)};
  };
  costs.embedding = seconds_of(costs.traces->embedding);
  costs.block = seconds_of(costs.traces->block);
  costs.head = seconds_of(costs.traces->head);
  costs.tied_weight = seconds_of(costs.traces->tied_weight);
  const CommRecord scalar = {.kind = CommKind::all_reduce,
                             .group = step_group,
                             .group_size = mesh.num_ranks(),
                             .dtype = DType::float64,
                             .num_elements = 1};
  costs.scalar_seconds = timer_.seconds({.events = {scalar}}, mesh);
  return costs;
}

double CostTable::transfer_seconds(const PlanShape& shape, const MeshShape& mesh) {
  if (shape.pp == 1) return 0;
  const TrainingConfig& training = request_->base.training;
  const std::int64_t tokens = shape.micro_batch_size * training.seq_len / (shape.sequence_parallel ? shape.tp : 1);
  const std::int64_t num_elements = tokens * request_->base.model.hidden_size;
  const auto [known, is_new] = transfers_.try_emplace({mesh.stride(Axis::pp), num_elements}, 0);
  const CommRecord transfer = {.kind = CommKind::send,
                               .group = pipeline_group,
                               .group_size = static_cast<int>(shape.pp),
                               .dtype = training.dtype,
                               .num_elements = num_elements,
                               .peer = 1};
  if (is_new) known->second = timer_.seconds({.events = {transfer}}, mesh);
  return known->second;
}

}  // namespace echelon
