// The documents of one sequence, and which keys a query sees.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace echelon {

/// Where the documents of a sequence of T tokens start, ascending: the first is 0, and T follows the last. An empty
/// document repeats an offset. {0, T} where documents do not limit attention.
using DocumentOffsets = std::vector<std::int32_t>;

/// Offsets from the start of each token's document, int32 [T], as BatchSource::read_document_starts gives it.
/// Overwrites `offsets`, whose memory is reused.
void find_documents(std::span<const std::int32_t> starts, DocumentOffsets& offsets);

/// Throws Error unless `offsets` starts with 0, does not decrease and ends with `seq_len`.
void require_documents_of(std::int64_t seq_len, std::span<const std::int32_t> offsets);

/// The position of each token in its document, int32: what data.reset_position_ids gives RoPE and learned positions.
/// `tokens` ascend. Rows of `ids` after them are padding, and get 0.
void write_document_positions(std::span<const std::int32_t> tokens, std::span<const std::int32_t> documents,
                              std::span<std::int32_t> ids);

/// Which keys a query sees: those of its own document up to its own position, and of these the last `window`.
struct Visibility {
  std::span<const std::int32_t> documents;  // DocumentOffsets
  std::int64_t window = 0;                  // query p sees p - window + 1 ... p; 0: no limit
};

/// Pairs (query, key) of the first `num_tokens` positions of a document: sum of min(i + 1, window).
[[nodiscard]] constexpr std::int64_t num_document_pairs(std::int64_t num_tokens, std::int64_t window) {
  if (window == 0 || num_tokens <= window) return num_tokens * (num_tokens + 1) / 2;
  return window * (window + 1) / 2 + (num_tokens - window) * window;
}

/// Pairs (query, key) of all documents of a sequence.
[[nodiscard]] std::int64_t num_pairs(const Visibility& visibility);

}  // namespace echelon
