// What a batch costs a cp group, from the boundaries of its documents: pairs (query, key) that each rank computes, and
// rows of keys that travel if no row is sent that no query sees. Both ends of a transfer compute the same numbers of
// rows.
#pragma once

#include "context/documents.h"
#include "context/row_runs.h"
#include "context/token_lists.h"

#include <cstdint>
#include <span>
#include <vector>

namespace echelon {

/// Pairs (query, key) of each rank, int64 [cp]: of one head and one sequence.
void count_pairs(const TokenLists& lists, const Visibility& visibility, std::span<std::int64_t> pairs);

/// Of ranks of which `head_ranks` in a row have the same queries and a part of the heads each: `pairs` of each rank's
/// own tokens become the sums over these ranks, which every one of them has for its heads.
void share_pairs(std::span<std::int64_t> pairs, int head_ranks);

/// Rows of keys (and as many of values) that are sent for one sequence, and of their gradients. Keys go in blocks:
/// those of one rank, or of several in a row that exchange heads (KeyExchange). Of each rank the sums are those of
/// KeyTransfers.
class KeyTraffic {
 public:
  /// Overwrites all counts; reuses their memory. Time: T for each block.
  void count(const TokenLists& lists, const Visibility& visibility, int ranks_of_block = 1);

  [[nodiscard]] int num_blocks() const { return num_blocks_; }

  /// Rows of block `source` that some query of `destination` sees: what all_gather sends, and gets back as gradients.
  [[nodiscard]] std::int64_t seen(int source, int destination) const { return seen_[at(source, destination)]; }

  /// What a ring sends of block `source` at hop 1 ... n - 1, from place source + hop - 1 to source + hop (modulo n):
  /// the rows that some query of source + hop ... source + n - 1 sees.
  [[nodiscard]] std::int64_t ring(int source, int hop) const { return ring_[at(source, hop)]; }

  /// Likewise of the block's gradients, from place source + hop to the next: rows that some query of source + 1 ...
  /// source + hop sees.
  [[nodiscard]] std::int64_t ring_gradients(int source, int hop) const { return ring_gradients_[at(source, hop)]; }

 private:
  [[nodiscard]] std::size_t at(int source, int i) const {
    return static_cast<std::size_t>(source) * static_cast<std::size_t>(num_blocks_) + static_cast<std::size_t>(i);
  }
  [[nodiscard]] std::span<const std::int32_t> positions(const TokenLists& lists, int block) const {
    return united_positions_.empty() ? lists.positions(block)
                                     : std::span(united_positions_[static_cast<std::size_t>(block)]);
  }
  void add(RowRuns& sum, const RowRuns& rows);

  int num_blocks_ = 0;
  std::vector<std::int64_t> seen_, ring_, ring_gradients_;   // [n, n]
  std::vector<std::vector<std::int32_t>> united_positions_;  // of blocks of several ranks
  std::vector<std::int32_t> begin_, end_;                    // ranges of one block
  std::vector<RowRuns> rows_;                                // of one block, by the distance of the queries
  RowRuns sum_, united_;
};

}  // namespace echelon
