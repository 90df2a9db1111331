// Causal attention that never stores T x T (Dao et al. 2022), and the merging of its parts. Legend: ops/ops.h.
#pragma once

#include "tensor/tensor.h"

#include <cstdint>

namespace echelon {

/// What the host knows of the ranges of all sequences, as a promise. The queries before `first_query` see no key. The
/// others see the keys before `end_key`: all of them (whole), or up to a diagonal that ends with the last query and the
/// last of these keys (causal). Kernels without ranges can compute these.
struct MaskShape {
  enum class Kind : std::uint8_t { ranges, causal, whole };

  Kind kind = Kind::ranges;  // nothing is known
  std::int64_t first_query = 0, end_key = 0;
  auto operator<=>(const MaskShape&) const = default;
};

/// Which keys a query sees: the rows of k from `begin` on and before `end`. Neither decreases along the
/// queries. Queries and keys may be any positions of a sequence in ascending order, so documents, chunks and blocks of
/// a ring are all such ranges. A query that sees no key has out 0 and lse -inf.
struct AttentionMask {
  Tensor begin = {};  // int32 [B, Tq]; 0 where left out
  Tensor end = {};    // int32 [B, Tq], at most Tk; left out, the mask is causal, and the last query sees the last key.
  /// Pairs (query, key) of a head that the causal mask and a window leave, of all sequences together; 0 without `end`:
  /// a whole triangle. A trace has no documents: pairs across two documents count, though none is computed.
  std::int64_t num_pairs = 0;
  MaskShape shape = {};  // of the two bounds, where they exist

  [[nodiscard]] bool is_causal() const { return !end.exists(); }
  [[nodiscard]] bool has_ranges() const { return begin.exists() || end.exists(); }
};

/// Pairs (query, key) of one head and one sequence that the causal mask leaves where the last query sees the last key.
[[nodiscard]] std::int64_t num_visible_pairs(std::int64_t num_queries, std::int64_t num_keys);
/// Of a head of all B sequences.
[[nodiscard]] std::int64_t num_visible_pairs(const AttentionMask& mask, const Tensor& q, const Tensor& k);
/// The mean over the sequences, rounded down.
[[nodiscard]] inline std::int64_t mean_visible_pairs(const AttentionMask& mask, const Tensor& q, const Tensor& k) {
  return q.size(0) == 0 ? 0 : num_visible_pairs(mask, q, k) / q.size(0);
}

/// The pairs that its ranges leave, whose values the host can read.
[[nodiscard]] std::int64_t count_seen_pairs(const AttentionMask& mask, const Tensor& q, const Tensor& k);

/// q, out [B, Tq, H, C]; k, v [B, Tk, K, C]; lse [B, H, Tq] is written: log sum exp of the scaled scores. Head h reads
/// kv head (h + first_head) / group, where group = query heads per kv head. With a soft cap c above 0, scores are
/// c tanh(score / c) of the scaled ones (Gemma Team 2024, arXiv:2408.00118).
struct AttentionArgs {
  static constexpr bool multiplies_matrices = true;
  Tensor q, k, v, out, lse;
  double scale = 1.0;
  std::int64_t group = 1;
  std::int64_t first_head = 0;
  AttentionMask mask = {};
  double soft_cap = 0;
};
/// delta [B, H, Tq] (accumulate_dtype) is scratch: row sums of dout * out. If keys and values are a part of those that
/// the queries attend to, out and lse are those of the whole rows. Then dk and dv are of this part, and the sum of dq
/// over all parts is dq of the whole. `scratch`, int32 [attention_scratch_size], is optional; with it a backend may be
/// faster. So is `dq_sums`, like q in its accumulate_dtype: where needs_dq_sums(q, k), CPUs take as much memory of
/// their own without it.
struct AttentionBackwardArgs {
  static constexpr bool multiplies_matrices = true;
  Tensor q, k, v, out, lse, dout;
  Tensor dq, dk, dv;
  Tensor delta;
  double scale = 1.0;
  std::int64_t group = 1;
  std::int64_t first_head = 0;
  AttentionMask mask = {};
  Tensor scratch = {};
  Tensor dq_sums = {};
  double soft_cap = 0;
};
/// CPUs attend to this many keys at a time, so that what they pack and sum does not grow with the sequence.
inline constexpr std::int64_t attention_keys_at_once = 2048;
/// Sums of dq wait in memory between two of these blocks: in dq, unless its dtype is narrower.
[[nodiscard]] inline bool needs_dq_sums(const Tensor& q_BTHC, const Tensor& k_BTKC) {
  return accumulate_dtype(q_BTHC.dtype) != q_BTHC.dtype && k_BTKC.size(1) > attention_keys_at_once;
}
/// The scratch of cuDNN's gradients of attention where dq is summed in memory, ordered or not (cudnn-frontend 1.32,
/// scaled_dot_product_flash_attention.h): dq [B, H, Tq, C] and the row sums of dout * out [B, H, Tq] in float32. Where
/// query heads share keys, also dk and dv of each query head [B, H, Tk, C] in their own dtype. All rows are rounded up
/// to tiles of 128. A plan needs up to 1 MiB more.
[[nodiscard]] inline std::int64_t attention_scratch_size(const Tensor& q_BTHC, const Tensor& k_BTKC) {
  constexpr std::int64_t tile = 128, of_a_plan = std::int64_t{1} << 20U;
  const auto rows = [&](const Tensor& x) {
    return q_BTHC.size(0) * q_BTHC.size(2) * ((x.size(1) + tile - 1) / tile * tile);
  };
  const std::int64_t C = q_BTHC.size(3), of_queries = rows(q_BTHC) * (C + 1) * size_of(DType::float32);
  const std::int64_t of_keys = q_BTHC.size(2) == k_BTKC.size(2) ? 0 : 2 * rows(k_BTKC) * C * size_of(k_BTKC.dtype);
  return (of_queries + of_keys + of_a_plan) / size_of(DType::int32);
}

/// Merges attention to two parts of the keys (Dao 2023, section 2.3; Liu et al. 2023, Ring Attention), where lse' =
/// log(exp(lse) + exp(part_lse)):
///     out = exp(lse - lse') out + exp(part_lse - lse') part      lse = lse'
/// part [B, T, H, C], part_lse [B, H, T]; out in part's dtype or its accumulate_dtype. A row that sees nothing of
/// either part keeps its values.
struct MergeAttentionArgs {
  Tensor out, lse, part, part_lse;
};

}  // namespace echelon
