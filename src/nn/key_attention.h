// Attention of some heads of a rank's queries to all keys that they see, however these keys get to the rank. Legend:
// nn/decoder/attention_core.h.
#pragma once

#include "nn/context.h"
#include "nn/head_split.h"

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace echelon {

/// q, k and v, or their gradients.
using Qkv = std::array<Tensor, 3>;

/// out [B, T, H, C] and the log-sum-exps, of KeyAttention::lse_sizes().
struct Attended {
  Tensor out, lse;
};
/// `delta`: scratch of the sizes of lse.
struct AttendedGradient {
  Attended of;
  Tensor dout, delta;
};

/// Saves nothing.
class KeyAttention {
 public:
  virtual ~KeyAttention() = default;

  [[nodiscard]] virtual Sizes lse_sizes(const Tensor& q) const { return {q.size(0), q.size(2), q.size(1)}; }
  virtual void forward(Context& context, const Qkv& qkv, const Attended& result) const = 0;
  /// Overwrites dqkv.
  virtual void backward(Context& context, const Qkv& qkv, const AttendedGradient& gradient, const Qkv& dqkv) const = 0;
  /// AttentionCore::decode. Throws Failure where ranks have a part of the tokens.
  virtual void decode(Ops& ops, const Qkv& qkv, Tensor begin, const Attended& result) const;
};

/// Which kv head each query head of a rank reads, and the scale of scores.
class HeadGroups {
 public:
  HeadGroups(const LayerOptions& options, const HeadSplit& split);

  [[nodiscard]] AttentionArgs forward_args(const Qkv& qkv, const Attended& result, const AttentionMask& mask) const;
  [[nodiscard]] AttentionBackwardArgs backward_args(const Qkv& qkv, const AttendedGradient& gradient, const Qkv& dqkv,
                                                    const AttentionMask& mask, const Tensor& dq_sums) const;
  /// For the gradients of queries and keys like these, where the device needs it.
  [[nodiscard]] Tensor take_dq_sums(Stack& workspace, const Tensor& q, const Tensor& k) const;
  /// AttentionBackwardArgs::scratch, where the device is faster with it.
  [[nodiscard]] bool give_scratch() const { return gives_scratch_; }

 private:
  bool gives_dq_sums_, gives_scratch_;
  std::int64_t group_;  // query heads per kv head
  std::int64_t first_head_;
  double scale_, soft_cap_;
};

/// AttentionBackwardArgs::scratch.
[[nodiscard]] Tensor take_attention_scratch(Stack& workspace, const Tensor& q, const Tensor& k);

/// Which rows of keys travel for a block.
struct TravellingRows {
  bool may_be_skipped = false;                   // LayerOptions::skips_unseen_keys
  std::span<const KeyTransfers> transfers = {};  // by sequence; empty: all travel
};

/// The ranges of keys of a block's window among those of a microbatch, and the rows that travel for it.
class WindowRanges {
 public:
  explicit WindowRanges(const LayerOptions& options);

  /// Those of a block of keys, [B, queries], with the pairs; `end` is left out where all ranges end with the query.
  [[nodiscard]] AttentionMask mask(const Microbatch& microbatch, const Sizes& queries, int block) const;
  [[nodiscard]] TravellingRows rows(const Microbatch& microbatch) const;
  /// Whether a MaskShape may describe them, or there are none.
  [[nodiscard]] bool may_be_shapes() const { return !has_window_; }

 private:
  [[nodiscard]] MaskShape shape(const Microbatch& microbatch, int block) const;

  bool has_window_ = false, skips_rows_;
  std::optional<std::size_t> window_;  // an index of options.windows
  std::int64_t num_windows_, num_blocks_ = 1;
  std::vector<std::int64_t> pairs_;  // of a sequence and each block of keys
};

/// Of a rank that has all tokens of its heads.
[[nodiscard]] std::unique_ptr<KeyAttention> make_local_attention(const LayerOptions& options, const HeadSplit& split);

}  // namespace echelon
