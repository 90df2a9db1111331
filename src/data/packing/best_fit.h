// Documents into sequences of seq_len tokens so that few documents are split: best-fit decreasing (Ding et al. 2024,
// "Fewer truncations improve language modeling", arXiv:2404.10830). Documents longer than seq_len are split into pieces
// of seq_len; what is left of them is packed as a document.
//
// The documents are shuffled. In each window of them the longest comes first, and each goes to the sequence with the
// smallest room that holds it (of several, the one that was changed last). So a sequence has documents of one window
// alone, and sorting by length does not order the data. A window takes time n log T and memory n, for n documents.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace echelon {

/// What the sequences depend on: neither on ranks nor on steps.
struct PackingRequest {
  std::span<const std::int64_t> document_starts;  // in the stream of tokens; the end of the last
  std::int64_t seq_len = 0;
  std::int64_t seed = 0;
};

/// Consecutive tokens of one document.
struct DocumentPiece {
  std::int64_t start = 0;  // in the stream of tokens
  std::int32_t length = 0;
};

/// Sequences of pieces. Pieces of a sequence have at most seq_len tokens together; what is missing is padding.
struct PackedSequences {
  std::int64_t seq_len = 0;
  std::vector<std::int64_t> piece_starts;
  std::vector<std::int32_t> piece_lengths;
  std::vector<std::int64_t> bounds = {0};  // first piece of each sequence; the end
  std::int64_t num_tokens = 0;
  std::int64_t num_split = 0;  // documents longer than seq_len

  [[nodiscard]] std::int64_t num_sequences() const { return std::ssize(bounds) - 1; }
  [[nodiscard]] std::int64_t num_padding() const { return num_sequences() * seq_len - num_tokens; }
  [[nodiscard]] std::int64_t num_pieces(std::int64_t sequence) const {
    return bounds[static_cast<std::size_t>(sequence) + 1] - bounds[static_cast<std::size_t>(sequence)];
  }
  [[nodiscard]] DocumentPiece piece(std::int64_t sequence, std::int64_t i) const {
    const auto at = static_cast<std::size_t>(bounds[static_cast<std::size_t>(sequence)] + i);
    return {piece_starts[at], piece_lengths[at]};
  }
  bool operator==(const PackedSequences&) const = default;
};

inline constexpr std::int64_t packing_window = 65536;  // documents

/// Each token of the data is in exactly one piece. Throws Error if seq_len is not in [1, 2^31).
[[nodiscard]] PackedSequences pack_best_fit(const PackingRequest& request);

}  // namespace echelon
