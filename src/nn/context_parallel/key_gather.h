// Keys and values of a kv head of all ranks of a cp group, and sums of their gradients over these ranks. Where a block
// has KeyTransfers, only their rows travel, from rank to rank; else all, by collectives. Sums are in rank
// order and in accumulate_dtype either way, so they have the same bits.
//
// Legend: own [1, B, T, C] of this rank, full [cp, B, T, C].
#pragma once

#include "nn/context_parallel/key_block.h"
#include "nn/key_attention.h"

#include <vector>

namespace echelon {

/// Gathers keys and values, which are waited for one by one.
class KeyGather {
 public:
  KeyGather(Context& context, const TravellingRows& rows);

  /// Where keys arrive: a row that never does is zero, since attention multiplies it by zero.
  [[nodiscard]] KeyBlock take_full(const KeyBlock& own);
  /// full = own of all ranks. Rows that do not travel keep what `full` has.
  void start(const KeyBlock& full, const KeyBlock& own);
  /// Until they have arrived. A rank whose peers are late attends: they need what it sends until finish().
  void wait(std::size_t i);
  /// Until all has been sent.
  void finish();

 private:
  Context& context_;
  Comm& comm_;
  TravellingRows rows_;
  std::array<std::vector<Pending>, 2> receives_;
  std::vector<Pending> sends_;
};

/// Sums gradients, of one kv head after the other.
class GradientScatter {
 public:
  /// `full` gives the sizes of what it receives, in the workspace.
  GradientScatter(Context& context, const KeyBlock& full, const TravellingRows& rows);

  /// own = the sum over the ranks of this rank's part of their `full`. They belong to it, own until wait() and full
  /// until finish().
  void start(const KeyBlock& own, const KeyBlock& full);
  void wait();
  void finish();

 private:
  void start_transfers_of(const KeyBlock& full);

  Context& context_;
  Comm& comm_;
  TravellingRows rows_;
  KeyBlock arrived_, own_;  // where rows are skipped
  std::vector<Pending> receives_, sends_;
};

}  // namespace echelon
