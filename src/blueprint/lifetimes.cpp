#include "blueprint/lifetimes.h"

#include "base/error.h"
#include "blueprint/unit_buffers.h"
#include "executor/boundaries.h"
#include "executor/scalars.h"
#include "executor/unit_state.h"
#include "schedule/lowering/passage.h"

namespace echelon {
namespace {

PlannedBuffer persistent(BufferKey key, MemoryCategory category, std::int64_t used_bytes,
                         std::int64_t allocated_bytes) {
  return {.key = key,
          .category = category,
          .num_bytes = aligned(allocated_bytes),
          .padding_bytes = aligned(allocated_bytes) - used_bytes};
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

/// The buffers that live during some actions.
class TransientBuffers {
 public:
  TransientBuffers(const Program& program, const ModelPart& part, const RankTrace& trace)
      : program_(program),
        part_(part),
        trace_(trace),
        passages_(passages_of(program)),
        released_at_(echelon::released_at(program)) {}

  std::vector<PlannedBuffer> list() {
    for (const auto& [place, passage] : passages_) {
      add_forward(place.first, place.second, passage);
      if (passage.first_backward != Passage::never) add_backward(place.first, place.second, passage);
    }
    for (const Action& action : program_)
      buffers_.push_back({.key = {BufferRole::workspace, action.id},
                          .category = MemoryCategory::workspace,
                          .num_bytes = trace_.of(action).workspace_bytes,
                          .first_action = action.id,
                          .last_action = action.id});
    return std::move(buffers_);
  }

 private:
  void add_forward(int stage, int microbatch, const Passage& at) {
    const StagePart& part = part_.stage(stage);
    const std::int64_t for_input = trace_.input_stash_bytes(stage);
    add({BufferRole::stash, microbatch, stage}, MemoryCategory::activations, trace_.stash_bytes(stage) - for_input,
        at.first_forward, at.last);
    add({BufferRole::input_stash, microbatch, stage}, MemoryCategory::activations, for_input, at.first_forward,
        std::max(at.forward, at.last_input));
    if (!part.is_first()) {
      const int written = part_.holds(stage - 1) ? passages_.at({stage - 1, microbatch}).forward : at.receive_forward;
      add(stage_input(stage, microbatch), MemoryCategory::boundaries, boundary_bytes_, written, at.last);
    }
    if (at.send_forward != Passage::never)
      add(stage_output(part_, stage, microbatch), MemoryCategory::boundaries, boundary_bytes_, at.forward,
          released_at(at.send_forward));
  }

  void add_backward(int stage, int microbatch, const Passage& at) {
    const StagePart& part = part_.stage(stage);
    if (at.is_split)
      add({BufferRole::gradient_stash, microbatch, stage}, MemoryCategory::activations,
          trace_.gradient_stash_bytes(stage), at.first_backward, at.last);
    if (!part.is_last()) {
      const int written =
          part_.holds(stage + 1) ? passages_.at({stage + 1, microbatch}).first_backward : at.receive_backward;
      add(output_gradient(stage, microbatch), MemoryCategory::boundaries, boundary_bytes_, written, at.last_input);
    }
    if (at.send_backward != Passage::never)
      add(input_gradient(part_, stage, microbatch), MemoryCategory::boundaries, boundary_bytes_, at.first_backward,
          released_at(at.send_backward));
    int num_between = part.stage->num_units() - 1;
    for (const BufferRole role : {BufferRole::flow_0, BufferRole::flow_1})
      if (num_between-- > 0)
        add({role, microbatch, stage}, MemoryCategory::boundaries, boundary_bytes_, at.first_backward, at.last_input);
  }

  [[nodiscard]] int released_at(int id) const { return released_at_[static_cast<std::size_t>(id)]; }

  void add(BufferKey key, MemoryCategory category, std::int64_t num_bytes, int first, int last) {
    buffers_.push_back(
        {.key = key, .category = category, .num_bytes = num_bytes, .first_action = first, .last_action = last});
  }

  const Program& program_;
  const ModelPart& part_;
  const RankTrace& trace_;
  std::int64_t boundary_bytes_ = aligned(part_.boundary_sizes().num_elements() * size_of(part_.options.dtype));
  Passages passages_;
  std::vector<int> released_at_;
  std::vector<PlannedBuffer> buffers_;
};

}  // namespace

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
    if (has_tables) buffers.push_back(persistent({role}, MemoryCategory::constants, table_bytes, table_bytes));
  const std::int64_t scalar_bytes = num_scalars * size_of(DType::float64);
  buffers.push_back(persistent({BufferRole::scalars}, MemoryCategory::constants, scalar_bytes, scalar_bytes));

  const std::int64_t batch_bytes = num_microbatches * part.options.num_tokens() * size_of(DType::int32);
  for (const BufferRole role : {BufferRole::tokens, BufferRole::targets, BufferRole::document_starts})
    if (role != BufferRole::document_starts || part.options.masks_documents)
      buffers.push_back(persistent({role}, MemoryCategory::batch, batch_bytes, batch_bytes));
  return buffers;
}

std::vector<PlannedBuffer> transient_buffers(const Program& program, const ModelPart& part, const RankTrace& trace) {
  std::vector<PlannedBuffer> buffers = TransientBuffers(program, part, trace).list();
  const std::vector<PlannedBuffer> of_units = unit_buffers(program, part);
  buffers.insert(buffers.end(), of_units.begin(), of_units.end());
  return buffers;
}

}  // namespace echelon
