// Causal attention that never stores T x T (Dao et al. 2022), and the merging of its parts. Legend: ops/ops.h.
#pragma once

#include "tensor/tensor.h"

#include <cstdint>
#include <optional>

namespace echelon {

/// Which keys a query sees. Queries and keys are parts of a sequence: query i is at position first_query + i, key j at
/// first_key + j. A query sees the keys up to its own position. With `starts` (int32 [B, Tq], positions that do not
/// decrease along Tq) it sees only those from starts[b, i] on, the start of its document. Keys may be any part of the
/// sequence. A query that sees none of them has out 0 and lse -inf.
struct AttentionMask {
  std::optional<std::int64_t> first_query = {};  // by default such that the last query is at the last key
  std::int64_t first_key = 0;
  Tensor starts = {};

  /// Query i sees no key beyond i + this.
  [[nodiscard]] std::int64_t diagonal(std::int64_t Tq, std::int64_t Tk) const {
    return first_query ? *first_query - first_key : Tk - Tq;
  }
};

/// Pairs (query, key) of one head that the causal mask leaves: query i sees keys 0 .. i + diagonal. The boundaries of
/// documents are data, which a trace does not have: pairs across two documents count here, though none is computed.
[[nodiscard]] std::int64_t num_visible_pairs(std::int64_t num_queries, std::int64_t num_keys, std::int64_t diagonal);
/// The last query sees the last key.
[[nodiscard]] inline std::int64_t num_visible_pairs(std::int64_t num_queries, std::int64_t num_keys) {
  return num_visible_pairs(num_queries, num_keys, num_keys - num_queries);
}

/// q, out [B, Tq, H, C]; k, v [B, Tk, K, C]; lse [B, H, Tq] is written: log sum exp of the scaled scores. Head h reads
/// kv head (h + first_head) / group, where group = query heads per kv head.
struct AttentionArgs {
  static constexpr bool multiplies_matrices = true;
  Tensor q, k, v, out, lse;
  double scale = 1.0;
  std::int64_t group = 1;
  std::int64_t first_head = 0;
  AttentionMask mask = {};
};
/// delta [B, H, Tq] (accumulate_dtype) is scratch: row sums of dout * out. If keys and values are a part of those that
/// the queries attend to, out and lse are those of the whole rows. Then dk and dv are of this part, and the sum of dq
/// over all parts is dq of the whole. `scratch`, int32 [attention_scratch_size], is optional; with it a backend may be
/// faster.
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
};
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
