#include "nn/head_split.h"

#include "base/error.h"
#include "nn/sharding.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace echelon {
namespace {

bool splits(const ModelSpec& model, std::int64_t tp) {
  const std::int64_t num_kv_heads = model.num_key_value_heads;
  return tp >= 1 && tp <= model.num_attention_heads && tp <= model.narrowest_mlp() &&
         (tp <= num_kv_heads || tp % num_kv_heads == 0);
}

std::int64_t closest_degree(const ModelSpec& model, std::int64_t tp) {
  const std::int64_t start =
      std::clamp<std::int64_t>(tp, 1, std::min(model.num_attention_heads, model.narrowest_mlp()));
  std::int64_t closest_below = start;
  while (!splits(model, closest_below)) --closest_below;  // ends at 1, which always goes
  for (std::int64_t above = start; above < 2 * start - closest_below; ++above)
    if (splits(model, above)) return above;
  return closest_below;
}

bool exchange_heads(const ModelSpec& model, int tp, int u) {
  for (int rank = 0; rank < tp; ++rank) {
    const HeadSplit split = head_split(model, tp, rank);
    const bool shares = u % split.num_kv_heads == 0, divides = split.num_kv_heads % u == 0;
    if (split.num_heads % u != 0 || (!shares && !divides)) return false;
  }
  return true;
}

}  // namespace

HeadSplit head_split(const ModelSpec& model, int tp, int tp_rank) {
  const std::int64_t group = model.num_attention_heads / model.num_key_value_heads;
  HeadSplit split;
  split.kv_replicas = kv_replicas(model, tp);
  split.kv_replica = tp_rank % split.kv_replicas;
  if (split.kv_replicas == 1) {
    const Slice kv_heads = even_slice(model.num_key_value_heads, tp, tp_rank);
    split.first_kv_head = kv_heads.first;
    split.num_kv_heads = kv_heads.count;
    split.first_head = kv_heads.first * group;
    split.num_heads = kv_heads.count * group;
    return split;
  }
  const Slice heads_of_group = even_slice(group, split.kv_replicas, split.kv_replica);
  split.first_kv_head = tp_rank / split.kv_replicas;
  split.num_kv_heads = 1;
  split.first_head = split.first_kv_head * group + heads_of_group.first;
  split.num_heads = heads_of_group.count;
  split.head_in_group = heads_of_group.first;
  return split;
}

int kv_replicas(const ModelSpec& model, int tp) {
  return tp > model.num_key_value_heads ? tp / static_cast<int>(model.num_key_value_heads) : 1;
}

void validate_tensor_parallel(const ModelSpec& model, int tp) {
  if (splits(model, tp)) return;
  throw Error(fmt::format(
      "parallelism.tensor_parallel_degree = {} does not split model.num_attention_heads = {}, "
      "model.num_key_value_heads = {} and model.intermediate_size = {}: it must not exceed heads or intermediate size "
      "and, above the kv heads, be a multiple of them (use {})",
      tp, model.num_attention_heads, model.num_key_value_heads, model.intermediate_size, closest_degree(model, tp)));
}

void validate_head_exchange(const ModelSpec& model, int tp, const HeadExchangeDegree& degree) {
  const int u = degree.num_ranks;
  if (exchange_heads(model, tp, u)) return;
  const HeadSplit split = head_split(model, tp, 0);
  int closest = 1;
  for (int other = 2; other <= split.num_heads; ++other)
    if (std::abs(other - u) < std::abs(closest - u) && (degree.divides == 0 || degree.divides % other == 0) &&
        exchange_heads(model, tp, other))
      closest = other;
  throw Error(
      fmt::format("{} = {} ranks cannot exchange the {} query and {} kv heads of a tensor-parallel rank: they must "
                  "divide the query "
                  "heads, and divide or be a multiple of the kv heads (use {})",
                  degree.key, u, split.num_heads, split.num_kv_heads, closest));
}

}  // namespace echelon
