#include "blueprint/lifetimes.h"

#include "base/error.h"
#include "executor/boundaries.h"
#include "executor/scalars.h"
#include "executor/unit_state.h"
#include "schedule/lowering/microbatch_actions.h"

#include <algorithm>
#include <map>
#include <utility>

namespace echelon {
namespace {

PlannedBuffer persistent(BufferKey key, MemoryCategory category, std::int64_t used_bytes, std::int64_t allocated_bytes,
                         RowKind rows = RowKind::none) {
  PlannedBuffer buffer = {.key = key,
                          .category = category,
                          .num_bytes = aligned(allocated_bytes),
                          .padding_bytes = aligned(allocated_bytes) - used_bytes};
  buffer.rows.add(rows, used_bytes);
  return buffer;
}

RowKind rows_of_batch(BufferRole role) {
  switch (role) {
    case BufferRole::key_begin:
    case BufferRole::key_end: return RowKind::queries;
    case BufferRole::rows_by_position:
    case BufferRole::rows_by_rank: return RowKind::none;
    default: return RowKind::sequence;
  }
}

MemoryCategory category_of(StateRole role) {
  switch (role) {
    case StateRole::param: return MemoryCategory::parameters;
    case StateRole::grad: return MemoryCategory::gradients;
    case StateRole::master: return MemoryCategory::master_weights;
    case StateRole::m:
    case StateRole::v: return MemoryCategory::moments;
  }
  throw Failure("unknown role of a unit's state");
}

/// The lifetimes of a program's buffers.
class Lifetimes {
 public:
  Lifetimes(const Program& program, const LoweringOptions& options, const std::vector<int>& rank_of_stage)
      : program_(program), options_(options), rank_of_stage_(rank_of_stage) {}

  std::vector<BufferLifetime> list() {
    for (const auto& [place, actions] : microbatches_) {
      add_forward(place.first, place.second, actions);
      if (actions.first_backward != never) add_backward(place.first, place.second, actions);
    }
    for (const Action& action : program_)
      if (is_compute(action.kind)) add({BufferRole::workspace, action.id}, action.stage, action.id, action.id);
    for (const Action& action : program_) add_of_unit(action);
    return std::move(lifetimes_);
  }

 private:
  static constexpr int never = MicrobatchActions::never;

  [[nodiscard]] bool shares_rank(int stage, int neighbor) const {
    return is_on_rank_of(rank_of_stage_, stage, neighbor);
  }

  void add_forward(int stage, int microbatch, const MicrobatchActions& at) {
    add({BufferRole::stash, microbatch, stage}, stage, at.first_forward, at.last);
    add({BufferRole::input_stash, microbatch, stage}, stage, at.first_forward, std::max(at.forward, at.last_input));
    if (stage > 0)
      add(stage_input(stage, microbatch), stage,
          shares_rank(stage, stage - 1) ? microbatches_.at({stage - 1, microbatch}).forward : at.receive_forward,
          at.last);
    if (at.send_forward != never)
      add(stage_output(rank_of_stage_, stage, microbatch), stage, at.forward, released_at(at.send_forward));
  }

  void add_backward(int stage, int microbatch, const MicrobatchActions& at) {
    if (at.is_split) add({BufferRole::gradient_stash, microbatch, stage}, stage, at.first_backward, at.last);
    if (stage + 1 < static_cast<int>(rank_of_stage_.size()))
      add(output_gradient(stage, microbatch), stage,
          shares_rank(stage, stage + 1) ? microbatches_.at({stage + 1, microbatch}).first_backward
                                        : at.receive_backward,
          at.last_input);
    if (at.send_backward != never)
      add(input_gradient(rank_of_stage_, stage, microbatch), stage, at.first_backward, released_at(at.send_backward));
    int num_between = options_.stages[static_cast<std::size_t>(stage)].num_units - 1;
    for (const BufferRole role : {BufferRole::flow_0, BufferRole::flow_1})
      if (num_between-- > 0) add({role, microbatch, stage}, stage, at.first_backward, at.last_input);
  }

  void add_of_unit(const Action& action) {
    const std::pair place = {action.stage, action.unit};
    const auto add_whole = [&](BufferRole role, int first, int last, bool is_owned = false) {
      lifetimes_.push_back({{role, first}, action.stage, action.unit, first, last, is_owned});
    };
    switch (action.kind) {
      case ActionKind::gather_parameters: gathered_[place] = action.id; return;
      case ActionKind::release_parameters: return add_whole(BufferRole::gathered_param, gathered_.at(place), action.id);
      case ActionKind::open_gradients: opened_[place] = action.id; return;
      case ActionKind::reduce_gradients: reduced_[place] = action.id; return;
      case ActionKind::store_gradients: {
        const int reduced = reduced_.at(place);
        if (options_.shards_gradients)
          add_whole(BufferRole::unreduced_grad, opened_.at(place), options_.converts_gradients ? reduced : action.id);
        if (options_.converts_gradients) add_whole(BufferRole::converted_grad, reduced, action.id);
        return;
      }
      case ActionKind::reduce_parts:
        if (options_.converts_gradients) add_whole(BufferRole::converted_grad, action.id, action.id, true);
        return;
      default: return;
    }
  }

  [[nodiscard]] int released_at(int id) const { return released_at_[static_cast<std::size_t>(id)]; }

  void add(BufferKey key, int stage, int first, int last) {
    lifetimes_.push_back({.key = key, .stage = stage, .first = first, .last = last});
  }

  const Program& program_;
  const LoweringOptions& options_;
  const std::vector<int>& rank_of_stage_;
  MicrobatchActionsMap microbatches_ = microbatch_actions_of(program_);
  std::vector<int> released_at_ = echelon::released_at(program_);
  std::map<std::pair<int, int>, int> gathered_, opened_, reduced_;  // by stage and unit: the last such action
  std::vector<BufferLifetime> lifetimes_;
};

MemoryCategory category_of(BufferRole role) {
  switch (role) {
    case BufferRole::stash:
    case BufferRole::input_stash:
    case BufferRole::gradient_stash: return MemoryCategory::activations;
    case BufferRole::workspace: return MemoryCategory::workspace;
    case BufferRole::gathered_param: return MemoryCategory::gathered_parameters;
    case BufferRole::unreduced_grad:
    case BufferRole::converted_grad: return MemoryCategory::unreduced_gradients;
    default: return MemoryCategory::boundaries;
  }
}

}  // namespace

std::vector<BufferLifetime> lifetimes_of(const Program& program, const LoweringOptions& options,
                                         const std::vector<int>& rank_of_stage) {
  return Lifetimes(program, options, rank_of_stage).list();
}

std::vector<PlannedBuffer> persistent_buffers(const ModelPart& part, std::int64_t num_microbatches) {
  std::vector<PlannedBuffer> buffers;
  for (const StagePart& each : part.stages)
    for (std::size_t unit = 0; unit < each.units.size(); ++unit)
      for (const StateBuffer& state : each.units[unit].state_buffers()) {
        const BufferKey key = state_key(state, each.index, static_cast<int>(unit));
        const std::int64_t num_used = each.units[unit].buckets()[state.bucket].num_parameters_in(state.range);
        buffers.push_back(persistent(key, category_of(state.role), num_used * size_of(state.dtype),
                                     state.range.count * size_of(state.dtype)));
      }

  const std::int64_t table_bytes =
      part.rope_table_sizes().num_elements() * size_of(accumulate_dtype(part.options.dtype));
  const bool has_tables = part.rope_table_sizes().num_dims() > 0;
  for (const BufferRole role : {BufferRole::rope_cos, BufferRole::rope_sin})
    if (has_tables)
      buffers.push_back(persistent({role}, MemoryCategory::constants, table_bytes, table_bytes, RowKind::sequence));
  const Sizes frequencies = part.rope_frequency_sizes();
  if (frequencies.num_dims() > 0) {
    const std::int64_t bytes = frequencies.num_elements() * size_of(DType::float64);
    buffers.push_back(persistent({BufferRole::rope_frequencies}, MemoryCategory::constants, bytes, bytes));
  }
  const Sizes weight_amaxes = part.weight_amax_sizes();
  if (weight_amaxes.num_dims() > 0) {
    const std::int64_t bytes = weight_amaxes.num_elements() * size_of(DType::float32);
    buffers.push_back(persistent({BufferRole::weight_amaxes}, MemoryCategory::constants, bytes, bytes));
  }
  const std::int64_t scalar_bytes = num_scalars * size_of(DType::float64);
  buffers.push_back(persistent({BufferRole::scalars}, MemoryCategory::constants, scalar_bytes, scalar_bytes));

  for (const auto& [role, dtype, sizes] :
       {std::tuple{BufferRole::router_sums, DType::float64, part.router_sums_sizes()},
        {BufferRole::router_loads, DType::float64, part.router_loads_sizes()},
        {BufferRole::router_bias, DType::float32, part.router_bias_sizes()},
        {BufferRole::exchange_counts, DType::float64, part.exchange_counts_sizes()}}) {
    const std::int64_t bytes = sizes.num_elements() * size_of(dtype);
    if (sizes.num_dims() > 0) buffers.push_back(persistent({role}, MemoryCategory::constants, bytes, bytes));
  }

  for (const BufferRole role : batch_roles) {
    const std::int64_t bytes = num_microbatches * part.batch_size(role) * size_of(DType::int32);
    if (bytes > 0) buffers.push_back(persistent({role}, MemoryCategory::batch, bytes, bytes, rows_of_batch(role)));
  }
  return buffers;
}

std::vector<PlannedBuffer> snapshot_buffers(const ModelPart& part, const CheckpointConfig& config,
                                            DeviceChoice device) {
  std::vector<PlannedBuffer> buffers;
  if (!config.saves_asynchronously()) return buffers;
  const std::vector<std::int64_t> copied_bytes = snapshot_bytes_of_units(part, config.snapshot_bytes);
  require(device != DeviceChoice::cuda || copied_bytes == snapshot_bytes_of_units(part, -1),
          "checkpoint.snapshot_bytes = {} is less than a rank's part of a checkpoint, and a GPU's state cannot be "
          "written in place (use -1)",
          config.snapshot_bytes);
  auto next = copied_bytes.begin();
  for (const StagePart& each : part.stages)
    for (int unit = 0; unit < std::ssize(each.units); ++unit, ++next)
      buffers.push_back(persistent({.role = BufferRole::snapshot, .index = unit, .stage = each.index},
                                   MemoryCategory::snapshot, *next, *next));
  return buffers;
}

std::int64_t bucket_bytes(BufferRole role, bool is_owned, const Bucket& bucket, const ShardOptions& options) {
  const DType dtype = role == BufferRole::gathered_param   ? options.dtype
                      : role == BufferRole::unreduced_grad ? options.grad_dtype
                                                           : options.reduce_dtype;
  if (!bucket.trains && role != BufferRole::gathered_param) return 0;
  return aligned((is_owned ? bucket.owned().count : bucket.num_elements) * size_of(dtype));
}

std::vector<PlannedBuffer> transient_buffers(const std::vector<BufferLifetime>& lifetimes, const Program& program,
                                             const ModelPart& part, const RankTrace& trace) {
  std::vector<PlannedBuffer> buffers;
  const auto add = [&](const BufferLifetime& of, BufferKey key, const RegionUse& use) {
    buffers.push_back({.key = key,
                       .category = category_of(key.role),
                       .num_bytes = use.num_bytes,
                       .rows = use.rows,
                       .first_action = of.first,
                       .last_action = of.last});
  };
  for (const BufferLifetime& each : lifetimes) {
    BufferKey key = each.key;
    switch (key.role) {
      case BufferRole::stash: add(each, key, trace.saved(each.stage).stash); break;
      case BufferRole::input_stash: add(each, key, trace.saved(each.stage).input_stash); break;
      case BufferRole::gradient_stash: add(each, key, trace.saved(each.stage).gradient_stash); break;
      case BufferRole::workspace:
        add(each, key, {.num_bytes = trace.of(program[static_cast<std::size_t>(each.first)]).workspace_bytes});
        break;
      case BufferRole::gathered_param:
      case BufferRole::unreduced_grad:
      case BufferRole::converted_grad: {
        const ShardedUnit& unit = part.unit({.stage = each.stage, .unit = each.unit});
        for (const Bucket& bucket : unit.buckets()) {
          const std::int64_t bytes = bucket_bytes(key.role, each.is_owned, bucket, unit.options());
          if (bytes > 0) add(each, key, {.num_bytes = bytes});
          ++key.bucket;
        }
        break;
      }
      default: add(each, key, boundary_of(part));
    }
  }
  return buffers;
}

}  // namespace echelon
