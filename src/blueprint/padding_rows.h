// Rows that a rank of context parallelism holds beyond its tokens (context/token_lists.h): padding that no query sees.
#pragma once

#include "blueprint/blueprint.h"

#include <cstdint>
#include <map>
#include <string>

namespace echelon {

struct PaddingRows {
  std::int64_t num_rows = 0, of_rows = 0;  // of T_r, on the rank with the fewest tokens of a sequence
  // Of activations and boundaries at the peak, whose tensors have a row per token: num_rows / of_rows of them.
  std::int64_t num_bytes = 0;
};

[[nodiscard]] PaddingRows padding_rows(const RankBlueprint& rank, ProgramKind kind);

/// "1 of 6 rows of activations and boundaries is padding: 0.02 MiB"; empty where there is none.
[[nodiscard]] std::string to_text(const PaddingRows& padding);

}  // namespace echelon
