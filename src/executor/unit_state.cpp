#include "executor/unit_state.h"

#include "base/error.h"
#include "optim/state_parts.h"

namespace echelon {
namespace {

BufferRole role_of(StateRole role) {
  switch (role) {
    case StateRole::param: return BufferRole::param;
    case StateRole::grad: return BufferRole::grad;
    case StateRole::master: return BufferRole::master;
    case StateRole::m: return BufferRole::m;
    case StateRole::v: return BufferRole::v;
  }
  throw Failure("unknown role of a unit's state");
}

}  // namespace

BufferKey state_key(const StateBuffer& state, int stage, int unit) {
  return {.role = role_of(state.role), .index = unit, .stage = stage, .bucket = static_cast<int>(state.bucket)};
}

std::vector<std::int64_t> snapshot_bytes_of_units(const ModelPart& model, std::int64_t limit_bytes) {
  const std::vector<const ShardedUnit*> units = model.units();
  std::vector<std::int64_t> bytes(units.size(), 0);
  std::int64_t sum = 0;
  for (std::size_t i = units.size(); i-- > 0;) {
    const std::int64_t of_unit = num_bytes_of(snapshot_runs(*units[i]));
    sum += of_unit;
    if (limit_bytes >= 0 && sum > limit_bytes) break;
    bytes[i] = of_unit;
  }
  return bytes;
}

void bind_state(ModelPart& model, Buffers& buffers) {
  for (StagePart& stage : model.stages)
    for (std::size_t unit = 0; unit < stage.units.size(); ++unit)
      stage.units[unit].bind([&](const StateBuffer& state) {
        return buffers.tensor(state_key(state, stage.index, static_cast<int>(unit)), state.dtype, {state.range.count});
      });
  const Sizes sizes = model.weight_amax_sizes();
  if (sizes.num_dims() == 0) return;
  const Tensor amaxes = buffers.tensor({BufferRole::weight_amaxes}, DType::float32, sizes);
  std::int64_t next = 0;
  for (Param* const param : model.rounded_weights()) param->amax = amaxes.rows(next++, 1);
}

void bind_rope(ModelPart& model, Ops& ops, Buffers& buffers) {
  if (const Sizes sizes = model.rope_table_sizes(); sizes.num_dims() > 0) {
    const DType wide = accumulate_dtype(model.options.dtype);
    const Tensor cos = buffers.tensor({BufferRole::rope_cos}, wide, sizes),
                 sin = buffers.tensor({BufferRole::rope_sin}, wide, sizes);
    for (StagePart& each : model.stages) each.stage->bind_rope_tables(ops, cos, sin);
  }
  if (const Sizes sizes = model.rope_frequency_sizes(); sizes.num_dims() > 0) {
    const Tensor frequencies = buffers.tensor({BufferRole::rope_frequencies}, DType::float64, sizes);
    for (StagePart& each : model.stages) each.stage->bind_rope_frequencies(ops, frequencies);
  }
}

}  // namespace echelon
