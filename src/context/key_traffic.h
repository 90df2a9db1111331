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

/// Rows of keys (and as many of values) that are sent for one sequence.
class KeyTraffic {
 public:
  /// Overwrites all counts; reuses their memory. Time: cp * T.
  void count(const TokenLists& lists, const Visibility& visibility);

  /// Rows of `source` that some query of `destination` sees: what all_gather sends.
  [[nodiscard]] std::int64_t seen(int source, int destination) const { return seen_[at(source, destination)]; }

  /// What a ring sends of the block of `source` at hop 1 ... cp - 1, from rank source + hop - 1 to source + hop (modulo
  /// cp): the rows that some query of source + hop ... source + cp - 1 sees.
  [[nodiscard]] std::int64_t ring(int source, int hop) const { return ring_[at(source, hop)]; }

 private:
  [[nodiscard]] std::size_t at(int source, int i) const {
    return static_cast<std::size_t>(source) * static_cast<std::size_t>(cp_) + static_cast<std::size_t>(i);
  }

  int cp_ = 0;
  std::vector<std::int64_t> seen_, ring_;  // [cp, cp]
  std::vector<std::int32_t> begin_, end_;  // ranges of one block
  RowRuns rows_, later_, united_;
};

}  // namespace echelon
