#include "nn/attention_projections.h"

#include <optional>
#include <utility>

namespace echelon {
namespace {

Param shared_by(Param param, int num_replicas, int replica) {
  if (num_replicas > 1) param.groups.partial = param.copies = kv_replica_group(num_replicas);
  param.is_first_copy = replica == 0;
  return param;
}

// Of q, k or v: `heads` of num_heads. Ranks that share a kv head have the parts of its gradient that come from their
// own query heads.
Linear projection(const LayerOptions& options, const std::string& name, std::int64_t num_heads, Slice heads,
                  int num_replicas = 1, int replica = 0) {
  const ModelSpec& model = options.model;
  const std::int64_t C = model.head_dim;
  const Slice rows = {heads.first * C, heads.count * C};
  const auto shared = [&](Param param) { return shared_by(std::move(param), num_replicas, replica); };
  Linear linear(options,
                shared(row_slice_of_matrix(options, name + ".weight", {num_heads * C, model.hidden_size}, rows)));
  if (model.qkv_bias) linear.set_bias(shared(slice_of_bias(name + ".bias", num_heads * C, rows)));
  return linear;
}

}  // namespace

ColumnParallel qkv_projections(const LayerOptions& options, const std::string& name, const HeadSplit& split) {
  const std::int64_t H = options.model.num_attention_heads, K = options.model.num_key_value_heads;
  const Slice q_heads = {split.first_head, split.num_heads}, kv_heads = {split.first_kv_head, split.num_kv_heads};
  const auto of_kv = [&](const std::string& which) {
    return projection(options, name + which, K, kv_heads, split.kv_replicas, split.kv_replica);
  };
  std::vector<Linear> linears = {projection(options, name + ".q_proj", H, q_heads), of_kv(".k_proj"), of_kv(".v_proj")};
  add_adapters(options, linears, ShardedSide::outputs);
  return {options, std::move(linears)};
}

std::vector<Norm> norms_of_projections(const LayerOptions& options, const std::string& name, const HeadSplit& split) {
  const std::int64_t C = options.model.head_dim, Q = options.model.num_attention_heads * C,
                     K = options.model.num_key_value_heads * C;
  const auto group = [&](int num_replicas) {
    return options.tp == num_replicas ? std::nullopt : std::optional(tp_strided_group(num_replicas));
  };
  Param of_q = slice_of_bias(name + ".q_norm.weight", Q, {split.first_head * C, split.num_heads * C});
  Param of_k = slice_of_bias(name + ".k_norm.weight", K, {split.first_kv_head * C, split.num_kv_heads * C});
  std::vector<Norm> norms;
  norms.push_back(Norm::of_projection(options, std::move(of_q), Q, group(1)));
  norms.push_back(Norm::of_projection(options, shared_by(std::move(of_k), split.kv_replicas, split.kv_replica), K,
                                      group(split.kv_replicas)));
  return norms;
}

RowParallel output_projection(const LayerOptions& options, const std::string& name, const HeadSplit& split) {
  const std::int64_t C = options.model.head_dim;
  return row_parallel(options, name + ".o_proj", options.model.num_attention_heads * C,
                      {split.first_head * C, split.num_heads * C}, options.model.o_bias);
}

}  // namespace echelon
