// What of a rank's memory is padding: buffers have so many bytes in rows of tokens, and some of these rows have no
// token (context/token_lists.h). Legend: context/key_blocks.h; B = sequences of a microbatch.
#pragma once

#include "context/context_method.h"
#include "context/token_lists.h"

#include <array>
#include <cstdint>

namespace echelon {

/// Whose tokens the rows of a tensor are.
enum class RowKind : std::uint8_t {
  sequence,  // this rank's: T_r rows of a sequence
  local,     // of them those of a tensor-parallel rank under sequence parallelism, B T_r / tp
  queries,   // those with which the rank attends, of a sequence
  none,      // no tokens, or a bounded number of rows that come from other ranks
};
inline constexpr std::size_t num_row_kinds = 3;

/// Bytes of tensors, by whose their rows are.
struct RowBytes {
  std::array<std::int64_t, num_row_kinds> of_kind = {};

  void add(RowKind kind, std::int64_t num_bytes) {
    if (kind != RowKind::none) of_kind[static_cast<std::size_t>(kind)] += num_bytes;
  }
  /// Adds `count` times as many.
  void add(const RowBytes& more, std::int64_t count = 1) {
    for (std::size_t kind = 0; kind < num_row_kinds; ++kind) of_kind[kind] += count * more.of_kind[kind];
  }
  bool operator==(const RowBytes&) const = default;
};

/// How many rows there are of each kind, and how many of them are padding.
struct RowPadding {
  struct Rows {
    std::int64_t padding = 0, all = 1;
    bool operator==(const Rows&) const = default;
  };
  std::array<Rows, num_row_kinds> of_kind = {};

  [[nodiscard]] const Rows& of(RowKind kind) const { return of_kind[static_cast<std::size_t>(kind)]; }
  /// Of tensors that have whole rows.
  [[nodiscard]] std::int64_t bytes(const RowBytes& rows) const;
};

/// Which of the B T_r rows of a rank are local: the place-th of `num_parts` parts.
struct LocalRows {
  std::int64_t num_sequences = 1;
  int num_parts = 1, place = 0;
};

/// Of one rank of a cp group. Where documents decide how many tokens it has, as many rows as can be padding.
[[nodiscard]] RowPadding row_padding(const TokenSplit& split, const KeyExchange& exchange, int rank,
                                     const LocalRows& local);
/// Of that rank of the group, and that place, which has most.
[[nodiscard]] RowPadding most_row_padding(const TokenSplit& split, const KeyExchange& exchange, LocalRows local);

}  // namespace echelon
