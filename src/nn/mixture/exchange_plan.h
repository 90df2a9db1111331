// Which rows the ranks of an expert group exchange, round by round. Letters: P ranks, E experts of which each rank has
// E / P in a row, R rows that a rank sends, Q rows that a rank receives in a round at most.
//
//     The rows of a rank are ordered by expert, so those for one rank are adjacent. A rank receives the rows of rank 0,
//     1, ... after each other; round r is rows r Q up to (r + 1) Q of them.
//     rounds = max over ranks of ceil(rows that it receives / Q), at least 1
//
// So memory depends on Q alone, nothing is dropped, and loads cost time. Every rank knows all counts, and computes the
// same rounds.
#pragma once

#include "comm/comm.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace echelon {

/// Of one round, by rank of the group: rows of what this rank sends, [R, ...], and of what it receives, [Q, ...].
struct ExchangeRound {
  std::vector<RowPart> sent, received;
};

class ExchangePlan {
 public:
  /// `offsets`: int32 [P, E + 1], of every rank where the rows of each expert start (ops/operations/mixture/experts.h).
  ExchangePlan(std::span<const std::int32_t> offsets, int num_ranks, int rank, std::int64_t most_rows);
  /// Each rank gives each other as many of its R rows, up to one: what is planned before loads are known.
  [[nodiscard]] static ExchangePlan balanced(std::int64_t num_rows, int num_ranks, int rank, std::int64_t most_rows);

  /// Each of P ranks sends the fraction shares[i] of its R rows to rank (`rank` + i) mod P. The shares are in [0, 1],
  /// and sum to 1 unless rows are dropped. If they fall, this is what the most loaded rank sees, and all others wait
  /// for that one. Where rows are dropped, a rank keeps one of its own at least.
  [[nodiscard]] static ExchangePlan of_shares(std::span<const double> shares, std::int64_t num_rows, int rank,
                                              std::int64_t most_rows);

  [[nodiscard]] int num_rounds() const { return num_rounds_; }
  /// More of them than the rows need, the last ones empty.
  void take_rounds(int at_least) { num_rounds_ = std::max(num_rounds_, at_least); }
  [[nodiscard]] ExchangeRound round(int index) const;
  /// The first row of a round among all that this rank receives.
  [[nodiscard]] std::int64_t first_row(int round) const { return round * most_rows_; }
  /// Rows that this rank sends in all rounds: the first ones of those that it has, without dropped ones.
  [[nodiscard]] std::int64_t num_sent() const;
  /// Rows that this rank receives in all rounds, and in one of them.
  [[nodiscard]] std::int64_t num_received() const { return received_[static_cast<std::size_t>(rank_)]; }
  [[nodiscard]] std::int64_t num_received(int round) const {
    return std::clamp<std::int64_t>(num_received() - first_row(round), 0, most_rows_);
  }

 private:
  /// Rows between this rank and another one: where they start in those of their source, and how many rows their target
  /// receives from ranks before it.
  struct Rows {
    RowPart of_source;
    std::int64_t before = 0;
  };
  ExchangePlan(int num_ranks, int rank, std::int64_t most_rows);
  /// Rows from `source` to `target`, and where they start in its rows.
  void add(int source, int target, RowPart rows);
  void count_rounds();
  /// The part of them in a round: `first` counts from the first one.
  [[nodiscard]] RowPart part(const Rows& rows, int round) const;

  int rank_, num_rounds_ = 1;
  std::int64_t most_rows_;
  std::vector<Rows> sent_, to_this_;    // of this rank, by target; and to it, by source
  std::vector<std::int64_t> received_;  // by target
};

}  // namespace echelon
