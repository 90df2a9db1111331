// Which attention heads are on which tensor-parallel rank.
//
// H query heads share K kv heads in groups of g = H / K (Ainslie et al. 2023, arXiv:2305.13245). Up to K ranks split
// the kv heads, each with its whole group of query heads. Beyond, R = tp / K consecutive ranks hold the same kv head
// and split its group.
#pragma once

#include "spec/model_spec.h"

#include <cstdint>
#include <string_view>

namespace echelon {

struct HeadSplit {
  std::int64_t first_head = 0, num_heads = 0;        // query heads of this rank
  std::int64_t first_kv_head = 0, num_kv_heads = 0;  // the kv heads that they read
  int kv_replicas = 1;                               // R: ranks that hold these kv heads
  int kv_replica = 0;                                // this rank among them
  std::int64_t head_in_group = 0;                    // of the first query head: AttentionArgs::first_head
};

/// The heads of one rank; shares differ by one kv head (or one query head of a shared kv head) at most. `tp` must have
/// passed validate_tensor_parallel.
[[nodiscard]] HeadSplit head_split(const ModelSpec& model, int tp, int tp_rank);

/// Ranks that hold the same kv head: tp / K above K, else 1.
[[nodiscard]] int kv_replicas(const ModelSpec& model, int tp);

/// Throws Error naming parallelism.tensor_parallel_degree and the closest valid degree, unless every rank gets a
/// query head and a feature of the MLP.
void validate_tensor_parallel(const ModelSpec& model, int tp);

/// `num_ranks` ranks of context parallelism exchange heads: `key` is set to that.
struct HeadExchangeDegree {
  std::string_view key;
  int num_ranks = 1;
  int divides = 0;  // what a degree to use instead must divide; 0: nothing
};
/// Throws Error naming the key and the closest valid degree, unless they divide the query heads of every
/// tensor-parallel rank, and the kv heads divide them or they the kv heads. `tp` must be valid.
void validate_head_exchange(const ModelSpec& model, int tp, const HeadExchangeDegree& degree);

}  // namespace echelon
