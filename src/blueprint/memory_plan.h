// Every buffer of a rank: category, bytes, lifetime, offset. What a rank holds depends on the order of its program and
// its edges, not on timing, so the peak is exact before the run; the engine allocates by it and has no other allocator.
#pragma once

#include "schedule/action.h"

#include <compare>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace echelon {

enum class MemoryCategory : std::uint8_t {
  parameters,
  gradients,
  master_weights,
  moments,
  padding,              // of the flat buffers, to shards of equal size
  constants,            // RoPE tables, scalars
  batch,                // tokens and targets of a step, and where documents begin
  activations,          // what forward keeps for backward
  boundaries,           // inputs, outputs and their gradients between stages and units
  workspace,            // scratch of one action
  gathered_parameters,  // whole units while they are used (ZeRO-3)
  unreduced_gradients,  // whole units of one microbatch (ZeRO-2 and 3), and gradients in the format in which they are
                        // reduced
};
[[nodiscard]] std::string_view name_of(MemoryCategory category);
[[nodiscard]] std::vector<MemoryCategory> memory_categories();

enum class BufferRole : std::uint8_t {
  // of (unit, stage, bucket)
  param,
  grad,
  master,
  m,
  v,
  // of the rank
  rope_cos,
  rope_sin,
  scalars,
  tokens,
  targets,
  document_starts,
  // of (microbatch, stage)
  stash,        // what forward keeps until the weights' gradients are formed,
  input_stash,  // and what it keeps until its input's gradient is
  gradient_stash,
  stage_input,
  stage_output,
  output_gradient,
  input_gradient,
  flow_0,  // gradients between units
  flow_1,
  // of (action)
  workspace,
  // of (action, bucket): the gather, the opening, the reduction that begins their life
  gathered_param,
  unreduced_grad,
  converted_grad,
  // of generation: caches of (block)
  key_cache,
  value_cache,
  logits,
};

/// Which buffer: `index` is the unit, the microbatch, the action or the block.
struct BufferKey {
  BufferRole role{};
  int index = 0;
  int stage = 0;
  int bucket = 0;
  auto operator<=>(const BufferKey&) const = default;
};

/// The lifetime of a persistent buffer.
inline constexpr int always = -1;

struct PlannedBuffer {
  BufferKey key;
  MemoryCategory category{};
  std::int64_t num_bytes = 0;      // with padding_bytes, a multiple of alignment_bytes
  std::int64_t padding_bytes = 0;  // counted as MemoryCategory::padding
  int first_action = always;       // lives from the begin of this action of the program
  int last_action = always;        // to the end of this one
  std::int64_t offset = 0;
};

/// The buffers of one program, and those that outlive it.
class MemoryPlan {
 public:
  MemoryPlan() = default;
  /// Gives every buffer its offset: persistent ones first, then the others, largest first, each at the lowest place
  /// that is free for its lifetime.
  explicit MemoryPlan(std::vector<PlannedBuffer> buffers);

  [[nodiscard]] const std::vector<PlannedBuffer>& buffers() const { return buffers_; }
  [[nodiscard]] bool contains(BufferKey key) const { return find(key) != nullptr; }
  [[nodiscard]] const PlannedBuffer& at(BufferKey key) const;
  [[nodiscard]] std::int64_t num_bytes() const { return num_bytes_; }
  /// Bytes of a category at the moment when it needs most.
  [[nodiscard]] std::int64_t peak_bytes(MemoryCategory category) const;
  /// Bytes of each category that is there at the moment when most is held in all (of several the first). Their sum is
  /// num_bytes() but for what is free between buffers then.
  [[nodiscard]] std::map<MemoryCategory, std::int64_t> bytes_at_peak() const;

 private:
  [[nodiscard]] const PlannedBuffer* find(BufferKey key) const;

  std::vector<PlannedBuffer> buffers_;
  std::vector<std::pair<BufferKey, std::size_t>> index_;  // ascending
  std::int64_t num_bytes_ = 0;
};

}  // namespace echelon
