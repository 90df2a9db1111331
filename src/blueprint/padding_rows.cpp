#include "blueprint/padding_rows.h"

namespace echelon {
namespace {

LocalRows local_rows(const LayerOptions& options) {
  LocalRows rows = {.num_sequences = options.num_sequences};
  if (options.sequence_parallel) rows.num_parts = options.tp, rows.place = options.tp_rank;
  return rows;
}

}  // namespace

RowPadding row_padding(const LayerOptions& options) {
  if (!options.tokens) return {};
  const RankTokens& tokens = *options.tokens;
  return row_padding(tokens.split, tokens.exchange, tokens.rank, local_rows(options));
}

MemoryPlan most_padded_memory(const RankBlueprint& rank, ProgramKind kind) {
  const LayerOptions& options = rank.part().options;
  if (!options.tokens) return rank.memory(kind);
  const RankTokens& tokens = *options.tokens;
  return rank.memory(kind).with_padding(most_row_padding(tokens.split, tokens.exchange, local_rows(options)));
}

}  // namespace echelon
