// Which rows of its blocks a ring sends for one sequence: keys and values that a later rank sees, and gradients that an
// earlier rank has added to. Ranks at both ends of a hop compute the same rows from the boundaries of documents.
// Legend: n blocks; the one of rank r is at distance d at rank r + d (modulo n).
//
//     keys, from distance d to d + 1         rows that some query of the ranks d + 1 ... n - 1 places on sees
//     gradients, from distance d to d + 1    rows that some query of the ranks 1 ... d places on sees
#pragma once

#include "context/documents.h"
#include "context/key_blocks.h"
#include "context/row_runs.h"

#include <cstdint>
#include <vector>

namespace echelon {

/// Rows of the block that a rank sends on, and of the one that it receives meanwhile.
struct RowTransfer {
  RowRuns sent, received;
};

class RingRows {
 public:
  /// Those of the rank of `blocks`. Overwrites all. Time: n T.
  void assign(const KeyBlocks& blocks, const Visibility& visibility);

  /// From distance 0 ... n - 2 to the next.
  [[nodiscard]] const RowTransfer& keys(int distance) const { return keys_[static_cast<std::size_t>(distance)]; }
  /// From distance 1 ... n - 1 to the next; after the last they are at home.
  [[nodiscard]] const RowTransfer& gradients(int distance) const {
    return gradients_[static_cast<std::size_t>(distance)];
  }

  /// Rows that this rank sends in all hops.
  [[nodiscard]] std::int64_t num_keys_sent() const;
  [[nodiscard]] std::int64_t num_gradients_sent() const;

 private:
  void add_block(int distance);

  std::vector<RowTransfer> keys_, gradients_;  // by distance
  std::vector<RowRuns> seen_;                  // of one block, by the distance of the queries
  RowRuns rows_, united_;
  std::vector<std::int32_t> begin_, end_;  // ranges of one block
};

}  // namespace echelon
