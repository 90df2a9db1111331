#include "blueprint/lifetimes.h"

#include "blueprint/boundaries.h"
#include "blueprint/scalars.h"
#include "blueprint/unit_buffers.h"
#include "schedule/passage.h"

namespace echelon {
namespace {

PlannedBuffer persistent(BufferKey key, MemoryCategory category, std::int64_t used_bytes,
                         std::int64_t allocated_bytes) {
  return {.key = key,
          .category = category,
          .num_bytes = aligned(allocated_bytes),
          .padding_bytes = aligned(allocated_bytes) - used_bytes};
}

/// `place` says which stage and unit.
void add_unit(std::vector<PlannedBuffer>& buffers, const ShardedUnit& unit, BufferKey place) {
  const ShardOptions& options = unit.options();
  const std::int64_t param_size = size_of(options.dtype), grad_size = size_of(options.grad_dtype);
  for (std::size_t b = 0; b < unit.buckets().size(); ++b) {
    const Bucket& bucket = unit.buckets()[b];
    const Range whole = {0, bucket.num_elements}, owned = unit.owned(bucket);
    const auto add = [&](BufferRole role, MemoryCategory category, Range range, std::int64_t element_size) {
      const BufferKey key = {role, place.index, place.stage, static_cast<int>(b)};
      buffers.push_back(
          persistent(key, category, bucket.num_parameters_in(range) * element_size, range.count * element_size));
    };
    add(BufferRole::param, MemoryCategory::parameters, options.shards_parameters() ? owned : whole, param_size);
    add(BufferRole::grad, MemoryCategory::gradients, options.shards_gradients() ? owned : whole, grad_size);
    if (options.has_master())
      add(BufferRole::master, MemoryCategory::master_weights, owned, size_of(options.master_dtype()));
    for (const BufferRole moment : {BufferRole::m, BufferRole::v})
      add(moment, MemoryCategory::moments, owned, size_of(options.moments_dtype));
  }
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
      add_unit(buffers, each.units[unit], {.index = static_cast<int>(unit), .stage = each.index});

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
