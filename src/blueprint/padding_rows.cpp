#include "blueprint/padding_rows.h"

#include <fmt/format.h>

namespace echelon {

PaddingRows padding_rows(const RankBlueprint& rank, ProgramKind kind) {
  const RankTokens* tokens = rank.part().options.tokens.get();
  if (tokens == nullptr) return {};
  PaddingRows padding = {.num_rows = tokens->rows - tokens->split.seq_len / tokens->cp, .of_rows = tokens->rows};
  std::int64_t by_token = 0;
  for (const auto& [category, bytes] : rank.memory(kind).bytes_at_peak())
    if (category == MemoryCategory::activations || category == MemoryCategory::boundaries) by_token += bytes;
  padding.num_bytes = by_token / padding.of_rows * padding.num_rows;
  return padding;
}

std::string to_text(const PaddingRows& padding) {
  if (padding.num_rows == 0) return "";
  constexpr double mib = 1 << 20;
  return fmt::format("{} of {} rows of activations and boundaries {} padding: {:.2f} MiB", padding.num_rows,
                     padding.of_rows, padding.num_rows == 1 ? "is" : "are",
                     static_cast<double>(padding.num_bytes) / mib);
}

}  // namespace echelon
