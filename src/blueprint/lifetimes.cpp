#include "blueprint/lifetimes.h"

#include "blueprint/scalars.h"

#include <algorithm>
#include <limits>
#include <map>

namespace echelon {
namespace {

PlannedBuffer persistent(BufferKey key, MemoryCategory category, std::int64_t used_bytes, std::int64_t allocated_bytes) {
  return {.key = key, .category = category, .num_bytes = aligned(allocated_bytes), .padding_bytes = aligned(allocated_bytes) - used_bytes};
}

void add_unit(std::vector<PlannedBuffer>& buffers, const ShardedUnit& unit, int index) {
  const ShardOptions& options = unit.options();
  const std::int64_t param_size = size_of(options.dtype), grad_size = size_of(options.grad_dtype), wide_size = size_of(accumulate_dtype(options.dtype));
  for (std::size_t b = 0; b < unit.buckets().size(); ++b) {
    const Bucket& bucket = unit.buckets()[b];
    const Range whole = {0, bucket.num_elements}, owned = unit.owned(bucket);
    const auto add = [&](BufferRole role, MemoryCategory category, Range range, std::int64_t element_size) {
      buffers.push_back(persistent({role, index, static_cast<int>(b)}, category, bucket.num_parameters_in(range) * element_size, range.count * element_size));
    };
    add(BufferRole::param, MemoryCategory::parameters, whole, param_size);
    add(BufferRole::grad, MemoryCategory::gradients, whole, grad_size);
    if (options.has_master()) add(BufferRole::master, MemoryCategory::master_weights, owned, wide_size);
    add(BufferRole::m, MemoryCategory::moments, owned, wide_size);
    add(BufferRole::v, MemoryCategory::moments, owned, wide_size);
  }
}

/// First and last action of a program that have to do with one microbatch, by kind.
struct MicrobatchSpan {
  int first_backward = std::numeric_limits<int>::max(), last = -1;
  std::map<ActionKind, int> at;  // of kinds that come once; of backward_input and backward_weight the first
};

std::map<int, MicrobatchSpan> microbatch_spans(const Program& program) {
  std::map<int, MicrobatchSpan> spans;
  for (const Action& action : program) {
    if (action.microbatch < 0) continue;
    MicrobatchSpan& span = spans[action.microbatch];
    span.at.try_emplace(action.kind, action.id);
    if (!is_compute(action.kind)) continue;
    span.last = action.id;
    if (action.kind != ActionKind::forward) span.first_backward = std::min(span.first_backward, action.id);
  }
  return spans;
}

/// The first action that waits for `id`: until its end the memory that `id` reads is in use. Without one, the program's end.
int released_at(const Program& program, int id) {
  for (std::size_t i = static_cast<std::size_t>(id) + 1; i < program.size(); ++i)
    if (std::binary_search(program[i].after.begin(), program[i].after.end(), id)) return static_cast<int>(i);
  return static_cast<int>(program.size()) - 1;
}

/// The last compute action of a microbatch, of one kind.
int last_of(const Program& program, int microbatch, ActionKind kind) {
  int last = -1;
  for (const Action& action : program)
    if (action.microbatch == microbatch && action.kind == kind) last = action.id;
  return last;
}

/// The buffers of one microbatch.
class MicrobatchBuffers {
 public:
  MicrobatchBuffers(const Program& program, const ModelPart& part, const RankTrace& trace, int microbatch, const MicrobatchSpan& span)
      : program_(program), part_(part), trace_(trace), microbatch_(microbatch), span_(span) {}

  std::vector<PlannedBuffer> list() {
    const std::int64_t boundary = aligned(part_.boundary_sizes().num_elements() * size_of(part_.options.dtype));
    const int forward = span_.at.at(ActionKind::forward);
    add(BufferRole::stash, MemoryCategory::activations, trace_.stash_bytes(), forward, span_.last);
    if (!part_.is_first()) add(BufferRole::stage_input, MemoryCategory::boundaries, boundary, span_.at.at(ActionKind::receive_forward), span_.last);
    if (!part_.is_last())
      add(BufferRole::stage_output, MemoryCategory::boundaries, boundary, forward, released_at(program_, span_.at.at(ActionKind::send_forward)));
    if (span_.first_backward < std::numeric_limits<int>::max()) add_gradients(boundary);
    return std::move(buffers_);
  }

 private:
  void add_gradients(std::int64_t boundary) {
    const bool is_split = span_.at.contains(ActionKind::backward_input);
    const int last_input = last_of(program_, microbatch_, is_split ? ActionKind::backward_input : ActionKind::backward);
    if (is_split) add(BufferRole::gradient_stash, MemoryCategory::activations, trace_.gradient_stash_bytes(), span_.first_backward, span_.last);
    if (!part_.is_last()) add(BufferRole::output_gradient, MemoryCategory::boundaries, boundary, span_.at.at(ActionKind::receive_backward), last_input);
    if (!part_.is_first())
      add(BufferRole::input_gradient, MemoryCategory::boundaries, boundary, span_.first_backward,
          released_at(program_, span_.at.at(ActionKind::send_backward)));
    const int num_gradients_between = part_.stage->num_units() - 1;
    if (num_gradients_between >= 1) add(BufferRole::flow_0, MemoryCategory::boundaries, boundary, span_.first_backward, last_input);
    if (num_gradients_between >= 2) add(BufferRole::flow_1, MemoryCategory::boundaries, boundary, span_.first_backward, last_input);
  }

  void add(BufferRole role, MemoryCategory category, std::int64_t num_bytes, int first, int last) {
    buffers_.push_back(
        {.key = {role, microbatch_, part_.stage_index}, .category = category, .num_bytes = num_bytes, .first_action = first, .last_action = last});
  }

  const Program& program_;
  const ModelPart& part_;
  const RankTrace& trace_;
  int microbatch_;
  const MicrobatchSpan& span_;
  std::vector<PlannedBuffer> buffers_;
};

}  // namespace

std::vector<PlannedBuffer> persistent_buffers(const ModelPart& part, std::int64_t num_microbatches) {
  std::vector<PlannedBuffer> buffers;
  for (std::size_t unit = 0; unit < part.units.size(); ++unit) add_unit(buffers, part.units[unit], static_cast<int>(unit));

  const std::int64_t table_bytes = part.stage->rope_table_sizes().num_elements() * size_of(accumulate_dtype(part.options.dtype));
  const bool has_tables = part.stage->rope_table_sizes().num_dims() > 0;
  for (const BufferRole role : {BufferRole::rope_cos, BufferRole::rope_sin})
    if (has_tables) buffers.push_back(persistent({role}, MemoryCategory::constants, table_bytes, table_bytes));
  const std::int64_t scalar_bytes = num_scalars * size_of(DType::float64);
  buffers.push_back(persistent({BufferRole::scalars}, MemoryCategory::constants, scalar_bytes, scalar_bytes));

  const std::int64_t batch_bytes = num_microbatches * part.options.num_tokens() * size_of(DType::int32);
  for (const BufferRole role : {BufferRole::tokens, BufferRole::targets})
    buffers.push_back(persistent({role}, MemoryCategory::batch, batch_bytes, batch_bytes));
  return buffers;
}

std::vector<PlannedBuffer> transient_buffers(const Program& program, const ModelPart& part, const RankTrace& trace) {
  std::vector<PlannedBuffer> buffers;
  for (const auto& [microbatch, span] : microbatch_spans(program)) {
    const auto more = MicrobatchBuffers(program, part, trace, microbatch, span).list();
    buffers.insert(buffers.end(), more.begin(), more.end());
  }
  for (const Action& action : program)
    buffers.push_back({.key = {BufferRole::workspace, action.id, part.stage_index},
                       .category = MemoryCategory::workspace,
                       .num_bytes = trace.of(action).workspace_bytes,
                       .first_action = action.id,
                       .last_action = action.id});
  return buffers;
}

}  // namespace echelon
