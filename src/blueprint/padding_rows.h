// Rows of a rank's memory that are no tokens (context/row_padding.h).
#pragma once

#include "blueprint/blueprint.h"

namespace echelon {

/// Of the rank with these options.
[[nodiscard]] RowPadding row_padding(const LayerOptions& options);

/// A rank's plan as that rank has it which differs in context and tensor parallelism alone and has most padding: what
/// is said of all of them. Their buffers are the same.
[[nodiscard]] MemoryPlan most_padded_memory(const RankBlueprint& rank, ProgramKind kind);

}  // namespace echelon
