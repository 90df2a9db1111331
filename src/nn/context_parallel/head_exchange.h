// The exchange of tokens for heads among u neighbours of a cp group (Jacobs et al. 2023, DeepSpeed Ulysses,
// arXiv:2309.14509, section 3.2):
//
//     by tokens  [B, T_r, heads, C]    a rank's own tokens, all heads of its tensor-parallel rank
//     by heads   [B, T_u, heads', C]   the tokens of all u ranks in ascending order, a part of the heads
//
//     to_heads     split_heads, all_to_all, gather_rows        to_tokens     gather_rows, all_to_all, join_heads
//
// Where ranks read one another's memory, one pass (exchange_columns) does all three, unless ranks share a kv head. It
// leaves the same bits, and sends as many bytes; plans and types have the three.
//
// A rank gets 1/u of the query heads and the kv heads that they read: 1/u of them, or one kv head that u / K ranks
// share. Each of these computes an addend of its gradient; join_heads sums them in accumulate_dtype. A rank sends
// (u - 1)/u of a tensor, of kv heads that ranks share (u - 1)/K.
#pragma once

#include "nn/context.h"
#include "nn/head_split.h"

#include <initializer_list>

namespace echelon {

class HeadExchange {
 public:
  explicit HeadExchange(const LayerOptions& options);

  [[nodiscard]] Sizes sizes_by_heads(const Tensor& by_tokens) const;

  struct Pair {
    Tensor by_tokens, by_heads;
  };
  /// Overwrites by_heads of each pair; all are on their way at once. Padding is zero.
  void to_heads(Context& context, std::initializer_list<Pair> pairs) const;
  /// Overwrites by_tokens: with the sum over the ranks that have the same heads.
  void to_tokens(Context& context, std::initializer_list<Pair> pairs) const;

 private:
  [[nodiscard]] bool is_direct(const Comm& comm, const Pair& pair) const;
  [[nodiscard]] std::int64_t copies(std::int64_t num_heads) const { return num_heads < u_ ? u_ / num_heads : 1; }
  /// [u, rows, columns] as it travels.
  [[nodiscard]] Tensor take_parts(Stack& workspace, const Pair& pair) const;
  [[nodiscard]] Tensor parts_of_tokens(const Tensor& by_tokens) const;

  std::int64_t u_, num_rows_;  // T_u
  Group group_;
};

/// The heads of place `place` among `u` ranks that exchange them.
[[nodiscard]] HeadSplit exchanged_heads(const HeadSplit& split, std::int64_t u, std::int64_t place);

}  // namespace echelon
