#include "predict/layer_costs.h"

#include "blueprint/lifetimes.h"
#include "predict/device_time.h"
#include "predict/network_time.h"
#include "spec/groups.h"

#include <algorithm>

namespace echelon {
namespace {

// Two ranks of two stages each, so that no rank has both ends of the model: embedding | block | two blocks, the first one formed again | head.
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

constexpr ActionKind pass_actions[num_pass_kinds] = {ActionKind::forward, ActionKind::backward, ActionKind::backward_input, ActionKind::backward_weight};

/// All passes of all units of a part, forward first.
Program all_passes(const ModelPart& part) {
  Program program;
  for (const ActionKind kind : pass_actions)
    for (const StagePart& each : part.stages)
      for (int i = 0; i < each.stage->num_units(); ++i) {
        const int unit = kind == ActionKind::forward ? i : each.stage->num_units() - 1 - i;
        program.push_back({.kind = kind, .stage = each.index, .microbatch = 0, .unit = unit, .id = static_cast<int>(program.size())});
      }
  return program;
}

/// The machine as if all nodes were of one kind, for each kind: the fastest of them bounds what any rank does.
std::vector<MachineSpec> one_kind_machines(const MachineSpec& machine) {
  std::vector<MachineSpec> all;
  for (const NodeSpec& kind : machine.nodes) {
    all.push_back(machine);
    all.back().nodes = {kind};
    all.back().nodes.front().count = 0;
  }
  return all;
}

/// Of one rank's calls on the machine; `mesh` is what its collectives see.
double call_seconds(const CallTrace& call, const MeshShape& mesh, const MachineSpec& machine) {
  const DeviceMap devices(mesh, machine);
  double seconds = 0;
  for (const OpRecord& operation : call.ops) seconds += operation_seconds(operation, machine.nodes.front().device);
  for (const CommRecord& record : call.comms) seconds += communication_seconds(record, 0, devices);
  return seconds;
}

double least_seconds(const CallTrace& call, const MeshShape& mesh, const std::vector<MachineSpec>& machines) {
  double least = no_time;
  for (const MachineSpec& machine : machines) least = std::min(least, call_seconds(call, mesh, machine));
  return least;
}

unsigned bits_of(const BlockOperations& operations) {
  unsigned bits = 0;
  for (const BlockOperation each : {BlockOperation::qkv_proj, BlockOperation::qk_norm, BlockOperation::core_attn, BlockOperation::o_proj, BlockOperation::mlp})
    bits = 2 * bits + (operations.contain(each) ? 1 : 0);
  return bits;
}

}  // namespace

CostTable::CostTable(const PlanSpace& space, const PlanRequest& request) : space_(&space), request_(&request) {}

const LayerCosts& CostTable::layers(const PlanShape& shape, const BlockOperations& recomputed) {
  const LayerKey key = {shape.tp, shape.sequence_parallel, shape.micro_batch_size, bits_of(recomputed)};
  const auto found = layers_.find(key);
  return found != layers_.end() ? found->second : layers_.emplace(key, traced_layers(shape, recomputed)).first->second;
}

const StateCosts& CostTable::state(const PlanShape& shape, const PlanData& data) {
  const StateKey key = {shape.tp, shape.pp, data.replicate, data.shard, data.zero_level, shape.micro_batch_size * 2 + (shape.sequence_parallel ? 1 : 0)};
  const auto found = states_.find(key);
  return found != states_.end() ? found->second : states_.emplace(key, traced_state(shape, data)).first->second;
}

LayerCosts CostTable::traced_layers(const PlanShape& shape, const BlockOperations& recomputed) const {
  PlanShape alone = shape;
  alone.dp = 1;
  const RunConfig config = small_config(space_->config_of({alone, {}, {}, {}}), recomputed);
  const MeshShape mesh = config.mesh_shape();
  RunConfig flat = config;
  flat.parallelism.pipeline_parallel_degree = 1;
  const MeshShape tensor_mesh = flat.mesh_shape();
  const std::vector<MachineSpec> machines = one_kind_machines(request_->machine);

  LayerCosts costs;
  for (const int pipeline_rank : {0, 1}) {
    const int rank = rank_of_stage(mesh, pipeline_rank);
    ModelPart part = make_model_part(config, small_schedule(), rank);
    const Program program = all_passes(part);
    const RankTrace trace(mesh, rank, part, program);
    costs.boundary_bytes = aligned(part.boundary_sizes().num_elements() * size_of(part.options.dtype));
    for (const Action& action : program) {
      UnitCost* unit = nullptr;
      if (action.stage == embedding_stage) unit = &costs.embedding;
      if (action.stage == head_stage) unit = &costs.head;
      if (action.stage == blocks_stage) unit = action.unit == 0 ? &costs.recomputed_block : &costs.block;
      if (unit == nullptr) continue;
      const auto kind = static_cast<std::size_t>(std::find(std::begin(pass_actions), std::end(pass_actions), action.kind) - std::begin(pass_actions));
      const CallTrace& call = trace.of(action);
      unit->seconds[kind] = least_seconds(call, tensor_mesh, machines);
      unit->workspace_bytes[kind] = call.workspace_bytes;
    }
    const auto take = [&](UnitCost& unit, int stage) {
      unit.input_stash_bytes = trace.input_stash_bytes(stage);
      unit.stash_bytes = trace.stash_bytes(stage) - unit.input_stash_bytes;
      unit.gradient_stash_bytes = trace.gradient_stash_bytes(stage);
    };
    if (pipeline_rank == 0) {
      take(costs.embedding, embedding_stage);
      take(costs.block, blocks_stage);  // two blocks and what is kept between them; the other rank has one of them alone
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

StateCosts CostTable::traced_state(const PlanShape& shape, const PlanData& data) const {
  RunConfig config = small_config(space_->config_of({shape, {}, {}, data}), {});
  const MeshShape mesh = config.mesh_shape();
  config.parallelism.pipeline_parallel_degree = shape.pp;
  const MeshShape whole_mesh = config.mesh_shape();
  config.parallelism.pipeline_parallel_degree = 2;
  const std::vector<MachineSpec> machines = one_kind_machines(request_->machine);

  StateCosts costs;
  for (const int pipeline_rank : {0, 1}) {
    const int rank = rank_of_stage(mesh, pipeline_rank);
    ModelPart part = make_model_part(config, small_schedule(), rank);
    const auto state_of = [&](int stage, int unit) -> UnitState* {
      const bool is_tied = unit == part.stage(stage).stage->num_units();
      if (is_tied) return &costs.tied_weight;
      if (stage == embedding_stage) return &costs.embedding;
      if (stage == head_stage) return &costs.head;
      return stage == block_stage ? &costs.block : nullptr;
    };
    Program program;
    const auto add = [&](ActionKind kind, int stage, int unit) {
      program.push_back({.kind = kind, .stage = stage, .microbatch = 0, .unit = unit, .id = static_cast<int>(program.size())});
    };
    const ShardOptions options = shard_options(config, rank);
    for (const StagePart& each : part.stages)
      for (int unit = 0; unit < static_cast<int>(each.units.size()); ++unit) {
        if (shape.dp > 1) add(ActionKind::reduce_gradients, each.index, unit);
        if (options.level > 0 && data.replicate > 1) add(ActionKind::reduce_parts, each.index, unit);
        add(ActionKind::update, each.index, unit);
        if (options.level > 0) add(ActionKind::gather_parameters, each.index, unit);
      }
    const RankTrace trace(mesh, rank, part, program);
    for (const Action& action : program) {
      UnitState* unit = state_of(action.stage, action.unit);
      if (unit == nullptr) continue;
      const double seconds = least_seconds(trace.of(action), whole_mesh, machines);
      if (action.kind == ActionKind::reduce_gradients) unit->reduce_seconds = seconds;
      if (action.kind == ActionKind::reduce_parts) unit->reduce_parts_seconds = seconds;
      if (action.kind == ActionKind::update) unit->update_seconds = seconds;
      if (action.kind == ActionKind::gather_parameters) unit->gather_seconds = seconds;
    }
    std::int64_t constant_bytes = 0;
    for (const PlannedBuffer& buffer : persistent_buffers(part, 0)) {
      const bool is_of_unit = buffer.key.role <= BufferRole::v;
      if (!is_of_unit) {
        constant_bytes += buffer.num_bytes;
      } else if (UnitState* unit = state_of(buffer.key.stage, buffer.key.index); unit != nullptr && (unit != &costs.tied_weight || pipeline_rank == 0)) {
        unit->persistent_bytes += buffer.num_bytes;
      }
    }
    costs.constant_bytes = constant_bytes;
    for (const StagePart& each : part.stages)
      for (int unit = 0; unit < static_cast<int>(each.units.size()); ++unit) {
        UnitState* state = state_of(each.index, unit);
        if (state == nullptr) continue;
        state->whole_param_bytes = state->whole_grad_bytes = 0;
        for (const Bucket& bucket : each.units[static_cast<std::size_t>(unit)].buckets()) {
          state->whole_param_bytes += bucket.num_elements * size_of(options.dtype);
          state->whole_grad_bytes += bucket.num_elements * size_of(options.grad_dtype);
        }
      }
  }
  const CommRecord scalar = {
      .kind = CommKind::all_reduce, .group = world_group, .group_size = whole_mesh.num_ranks(), .dtype = DType::float64, .num_elements = 1};
  costs.scalar_seconds = least_seconds({{}, {scalar}}, whole_mesh, machines);
  if (shape.pp > 1) {
    const std::int64_t tokens = shape.micro_batch_size * config.training.seq_len / (shape.sequence_parallel ? shape.tp : 1);
    const CommRecord transfer = {.kind = CommKind::send,
                                 .group = pipeline_group,
                                 .group_size = static_cast<int>(shape.pp),
                                 .dtype = parse_dtype(config.training.dtype),
                                 .num_elements = tokens * config.model.hidden_size,
                                 .peer = 1};
    costs.transfer_seconds = least_seconds({{}, {transfer}}, whole_mesh, machines);
  }
  return costs;
}

}  // namespace echelon
