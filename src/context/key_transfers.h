// Which rows of keys and values, and of their gradients, travel for one sequence: those that a query sees where they
// go. Ranks at both ends of a transfer compute the same rows from boundaries of documents and windows. Legend: n blocks
// of keys; the one of rank r is at distance d at rank r + d (modulo n).
//
//     ring          keys, from distance d to d + 1         rows that the ranks d + 1 ... n - 1 places on see
//                   gradients, from distance d to d + 1    rows that the ranks 1 ... d places on see
//     all_gather    keys, to the rank d places on, and gradients from it: rows that it sees
#pragma once

#include "context/documents.h"
#include "context/key_blocks.h"
#include "context/key_ranges.h"
#include "context/row_runs.h"

#include <cstdint>
#include <vector>

namespace echelon {

/// Rows of the block that a rank sends, and of the one that it receives meanwhile.
struct RowTransfer {
  RowRuns sent, received;
};

class KeyTransfers {
 public:
  /// Those of a rank. Overwrites all. Time: n T in a ring, else T.
  void assign(const TokenLists& lists, const KeyBlocks& blocks, const KeyExchange& exchange, int rank,
              const Visibility& visibility);

  /// In a ring: from distance 0 ... n - 2 to the next. Gathered: to the rank 1 ... n - 1 places on, and from the one as
  /// many places before.
  [[nodiscard]] const RowTransfer& keys(int distance) const { return keys_[static_cast<std::size_t>(distance)]; }
  /// In a ring: from distance 1 ... n - 1 to the next; after the last they are at home. Gathered: to the rank 1 ... n -
  /// 1 places before, and from the one as many places on.
  [[nodiscard]] const RowTransfer& gradients(int distance) const {
    return gradients_[static_cast<std::size_t>(distance)];
  }

  [[nodiscard]] bool is_assigned() const { return !keys_.empty(); }
  /// Rows that this rank sends altogether.
  [[nodiscard]] std::int64_t num_keys_sent() const;
  [[nodiscard]] std::int64_t num_gradients_sent() const;

 private:
  void clear(int num_blocks);
  void assign_ring(const TokenLists& lists, const KeyBlocks& blocks, const Visibility& visibility);
  void assign_gather(const TokenLists& lists, int rank, const Visibility& visibility);
  void add_block(int distance);
  void find_seen(const QueriesAndKeys& rows, const Visibility& visibility, RowRuns& seen);

  std::vector<RowTransfer> keys_, gradients_;  // by distance
  std::vector<RowRuns> seen_;                  // of one block, by the distance of the queries
  RowRuns rows_, united_;
  std::vector<std::int32_t> begin_, end_;  // ranges of one block
};

}  // namespace echelon
