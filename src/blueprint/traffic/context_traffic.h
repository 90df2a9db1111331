// What a program sends over the ranks of context parallelism: as planned, where all rows travel, or for a batch whose
// documents and windows leave rows out (context/key_transfers.h).
#pragma once

#include "blueprint/blueprint.h"

#include <cstdint>
#include <span>
#include <vector>

namespace echelon {

/// Rows that a rank sends in one pass around the ring, or of one kv head to all ranks. Of several sequences or
/// microbatches: the sum.
struct KeyRowCounts {
  std::int64_t keys = 0, gradients = 0;
};

/// How often they travel so for each microbatch.
struct KeyPasses {
  std::int64_t keys = 0, gradients = 0;
};

struct ContextTraffic {
  std::int64_t planned_bytes = 0;      // sent by this rank, to rings and to ranks that exchange heads or gather keys
  KeyRowCounts planned = {};           // of all sequences
  std::vector<KeyPasses> passes = {};  // by LayerOptions::windows
  std::int64_t key_row_bytes = 0, gradient_row_bytes = 0;  // of keys and values together

  /// Of a batch in which these rows travel, by LayerOptions::windows.
  [[nodiscard]] std::int64_t sent_bytes(std::span<const KeyRowCounts> rows) const;
};

/// Of the rank's program, for all its microbatches.
[[nodiscard]] ContextTraffic context_traffic(const RunConfig& config, const RankBlueprint& rank, ProgramKind kind);

}  // namespace echelon
