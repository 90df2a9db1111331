// Every buffer of a rank: category, bytes, lifetime, offset. What a rank holds depends on the order of its program and
// its edges, not on timing, so the peak is exact before the run; the engine allocates by it and has no other allocator.
#pragma once

#include "executor/buffers.h"

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
  snapshot,             // the copy of the state that a checkpoint is written from while training continues
  padding,              // of the flat buffers, to shards of equal size
  padding_rows,         // of batch, activations and boundaries, and of RoPE tables: those that are no tokens
  constants,            // RoPE tables, scalars
  batch,                // tokens and targets of a step, and where documents start
  activations,          // what forward keeps for backward
  boundaries,           // inputs, outputs and their gradients between stages and units
  workspace,            // scratch of one action
  gathered_parameters,  // whole units while they are used (ZeRO-3)
  // Whole units of one microbatch (ZeRO-2 and 3), and gradients in the format in which they are reduced.
  unreduced_gradients,
};
[[nodiscard]] std::string_view name_of(MemoryCategory category);
[[nodiscard]] std::vector<MemoryCategory> memory_categories();

/// The lifetime of a persistent buffer.
inline constexpr int always = -1;

struct PlannedBuffer {
  BufferKey key;
  MemoryCategory category{};
  std::int64_t num_bytes = 0;      // with padding_bytes, a multiple of alignment_bytes
  std::int64_t padding_bytes = 0;  // counted as MemoryCategory::padding
  RowBytes rows = {};              // those that are padding are counted as MemoryCategory::padding_rows
  int first_action = always;       // lives from the start of this action of the program
  int last_action = always;        // to the end of this one
  std::int64_t offset = 0;
};

/// The buffers of one program, and those that outlive it.
class MemoryPlan {
 public:
  MemoryPlan() = default;
  /// Gives every buffer its offset: persistent ones first, then the others, largest first, each at the lowest place
  /// that is free for its lifetime.
  explicit MemoryPlan(std::vector<PlannedBuffer> buffers, const RowPadding& padding = {});
  /// The same buffers where other rows are padding.
  [[nodiscard]] MemoryPlan with_padding(const RowPadding& padding) const;

  [[nodiscard]] const std::vector<PlannedBuffer>& buffers() const { return buffers_; }
  [[nodiscard]] bool contains(BufferKey key) const { return find(key) != nullptr; }
  [[nodiscard]] const PlannedBuffer& at(BufferKey key) const;
  [[nodiscard]] std::int64_t num_bytes() const { return num_bytes_; }
  [[nodiscard]] const RowPadding& padding() const { return padding_; }
  /// Bytes of a category at the moment when it needs most.
  [[nodiscard]] std::int64_t peak_bytes(MemoryCategory category) const;
  /// Of the buffers of a category, rows that are padding: at the moment when they have most.
  [[nodiscard]] std::int64_t peak_padding_bytes(MemoryCategory category) const;
  /// Bytes of each category at the moment of the highest use in total (the first such moment). Their sum is num_bytes()
  /// minus the gaps between buffers at that moment.
  [[nodiscard]] std::map<MemoryCategory, std::int64_t> bytes_at_peak() const;

 private:
  [[nodiscard]] const PlannedBuffer* find(BufferKey key) const;

  std::vector<PlannedBuffer> buffers_;
  std::vector<std::pair<BufferKey, std::size_t>> index_;  // ascending
  std::int64_t num_bytes_ = 0;
  RowPadding padding_;
};

}  // namespace echelon
