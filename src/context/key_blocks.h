// With which queries a rank attends to which blocks of keys, in ascending order of positions. Legend: cp ranks with T_r
// rows each; u of them exchange heads (KeyExchange).
//
//                  queries                   blocks of keys          rows are gathered from
//   ring           its own                   cp: those of each rank  -
//   all_gather     its own                   1: all                  cp ranks
//   ulysses        all                       1: all                  cp ranks
//   ulysses_ring   of its group of u ranks   cp / u: of each group   u ranks
//
// All tokens of a sequence have T rows, those of n < cp ranks n T_r, of which the last are padding.
#pragma once

#include "context/context_method.h"
#include "context/token_lists.h"

#include <cstdint>
#include <span>
#include <vector>

namespace echelon {

/// The positions of `num_ranks` ranks in a row, ascending. Overwrites `positions`.
void unite_positions(const TokenLists& lists, int first_rank, int num_ranks, std::vector<std::int32_t>& positions);

/// What a plan knows of them, without a list of positions.
class KeyBlockSizes {
 public:
  KeyBlockSizes() = default;
  KeyBlockSizes(const TokenSplit& split, const KeyExchange& exchange, int rank);

  [[nodiscard]] int num_blocks() const { return num_blocks_; }
  /// The block that has this rank's own keys: the rank's place in a ring of blocks.
  [[nodiscard]] int own_block() const { return own_block_; }
  /// How many ranks' keys a block has, which are gathered; 1: none are.
  [[nodiscard]] int ranks_of_block() const { return ranks_of_block_; }
  [[nodiscard]] bool queries_are_whole() const { return queries_are_whole_; }  // all positions of the sequence
  [[nodiscard]] std::int64_t num_query_rows() const { return num_query_rows_; }
  [[nodiscard]] std::int64_t num_gathered_rows() const { return num_gathered_rows_; }

 private:
  int num_blocks_ = 1, own_block_ = 0, ranks_of_block_ = 1;
  bool queries_are_whole_ = false;
  std::int64_t num_query_rows_ = 0, num_gathered_rows_ = 0;
};

class KeyBlocks : public KeyBlockSizes {
 public:
  /// Overwrites all; reuses the memory. `lists`: of the split. Time: T u.
  void assign(const TokenSplit& split, const TokenLists& lists, const KeyExchange& exchange, int rank);

  /// Positions, without padding.
  [[nodiscard]] std::span<const std::int32_t> queries() const { return queries_; }
  /// `lists`: those from which it was assigned.
  [[nodiscard]] std::span<const std::int32_t> keys(const TokenLists& lists, int block) const {
    return ranks_of_block() == 1 ? lists.positions(block) : std::span(keys_[static_cast<std::size_t>(block)]);
  }

  /// For each gathered row in ascending order of positions, which one it is where the T_r rows of rank after rank
  /// follow each other; -1: padding.
  [[nodiscard]] std::span<const std::int32_t> by_position() const { return by_position_; }
  /// The inverse: for each of these rows its place in ascending order; -1: padding.
  [[nodiscard]] std::span<const std::int32_t> by_rank() const { return by_rank_; }

 private:
  void write_order(const TokenLists& lists, int first_rank);

  std::vector<std::int32_t> queries_;
  std::vector<std::vector<std::int32_t>> keys_;  // of each block that has those of several ranks
  std::vector<std::int32_t> by_position_, by_rank_;
  std::vector<std::int32_t> row_of_position_;  // of the sequence, while assign() runs
};

}  // namespace echelon
