// The buffers that actions work on, by name. What a buffer is, is the caller's: planned memory of an arena, memory
// whose contents have types, or no data at all, of which the sizes are recorded and the memory plan is made.
#pragma once

#include "nn/stash.h"
#include "tensor/tensor.h"

#include <compare>
#include <cstdint>

namespace echelon {

enum class BufferRole : std::uint8_t {
  // of (unit, stage, bucket)
  param,
  grad,
  master,
  m,
  v,
  // of (unit, stage): bytes of all buckets
  snapshot,
  // of the rank
  rope_cos,
  rope_sin,
  rope_frequencies,
  weight_amaxes,
  scalars,
  router_sums,
  router_loads,
  router_bias,
  exchange_counts,
  tokens,
  targets,
  key_begin,
  key_end,
  rows_by_position,
  rows_by_rank,
  positions,
  places,
  // of (microbatch, stage)
  stash,        // what forward saves until the weights' gradients are computed,
  input_stash,  // and what it saves until its input's gradient is
  gradient_stash,
  stage_input,
  stage_output,
  output_gradient,
  input_gradient,
  flow_0,  // gradients between units
  flow_1,
  // of (action)
  workspace,
  // of (action, bucket): the gather, the opening or the reduction that starts their lifetime
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

/// What was taken of a region: the most at one time, and of a stash whose rows that has.
struct RegionUse {
  std::int64_t num_bytes = 0;
  RowBytes rows = {};

  void add(const RegionUse& more, std::int64_t count = 1) {
    num_bytes += count * more.num_bytes;
    rows.add(more.rows, count);
  }
};

class Buffers {
 public:
  virtual ~Buffers() = default;
  /// The whole buffer as one tensor. Throws Failure if the memory plan gave it another number of bytes.
  [[nodiscard]] virtual Tensor tensor(BufferKey key, DType dtype, const Sizes& sizes) = 0;
  /// The buffer as a region to take tensors from; a region without data has no limit.
  [[nodiscard]] virtual Stack region(BufferKey key) = 0;
  virtual void note_use(BufferKey key, const RegionUse& use) = 0;
};

}  // namespace echelon
