// A ring in which blocks of keys and values, or their gradients, go from rank to rank. Of a block only the rows of
// KeyTransfers travel, where a block has them; else all. Both ends of a hop know how many these are.
#pragma once

#include "nn/context_parallel/key_block.h"
#include "nn/key_attention.h"

#include <vector>

namespace echelon {

class BlockRing {
 public:
  BlockRing(Context& context, const KeyExchange& exchange, const TravellingRows& rows);

  /// A block on its way to the next rank while that of the rank before arrives.
  class Hop {
   public:
    /// Until the block has arrived. The ring waits for what is sent when its memory is needed, so that a rank whose
    /// next rank is late attends to the next block.
    void wait() {
      for (Pending& each : receives_) each.wait();
      receives_.clear();
    }

   private:
    friend class BlockRing;
    std::vector<Pending> receives_;
  };
  /// From `distance` to the next. `received` belongs to the hop until it was waited for and is what the next hop sends;
  /// `sent` belongs to the ring until the hop after receives it, or finish(). Rows that do not travel keep what
  /// `received` has.
  [[nodiscard]] Hop pass_keys(const KeyBlock& sent, const KeyBlock& received, int distance);
  /// The same of gradients; of rows that do not travel they are zero.
  [[nodiscard]] Hop pass_gradients(const KeyBlock& sent, const KeyBlock& received, int distance);
  /// Until all has been sent.
  void finish();

  /// Of the sizes of `block`, in the workspace, for keys to arrive in: a row that never does is zero, since attention
  /// multiplies it by zero.
  [[nodiscard]] KeyBlock take_keys(const KeyBlock& block);

 private:
  using TransferOf = const RowTransfer& (*)(const KeyTransfers&, int distance);
  [[nodiscard]] Hop pass(const KeyBlock& sent, const KeyBlock& received, int distance, TransferOf transfer_of,
                         std::vector<Pending>& sends);

  Context& context_;
  Comm& comm_;
  TravellingRows rows_;
  std::vector<Pending> own_sends_, key_sends_, gradient_sends_;  // of the own keys; of the last hop
};

/// The ranks whose keys form the ring.
[[nodiscard]] Group ring_group(const KeyExchange& exchange);

}  // namespace echelon
