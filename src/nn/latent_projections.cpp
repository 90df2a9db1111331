#include "nn/latent_projections.h"

#include "nn/sharding.h"

#include <utility>
#include <vector>

namespace echelon {
namespace {

constexpr double eps_of_latents = 1e-6;  // whatever the model's norm_eps

/// From `in` values of a token to `width` for each head of this rank.
ColumnParallel expanding(const LayerOptions& options, const std::string& name, const HeadSplit& split, std::int64_t in,
                         std::int64_t width) {
  const Slice rows = {split.first_head * width, split.num_heads * width};
  const Sizes sizes = {options.model.num_attention_heads * width, in};
  std::vector<Linear> linears;
  linears.emplace_back(options, row_slice_of_matrix(options, name + ".weight", sizes, rows));
  add_adapters(options, linears, ShardedSide::outputs);
  return {options, std::move(linears)};
}

}  // namespace

std::int64_t expanded_head(const ModelSpec& model) {
  return model.head_dim - model.qk_rope_head_dim + model.v_head_dim;
}

Linear whole_linear(const LayerOptions& options, const std::string& name, std::int64_t out) {
  Param weight = replicated(options, name + ".weight", {out, options.model.hidden_size});
  weight.init_std = options.model.initializer_range;
  return {options, std::move(weight)};
}

Norm norm_of_latent(const LayerOptions& options, const std::string& name, std::int64_t width) {
  ModelSpec model = options.model;
  model.norm_eps = eps_of_latents;
  return {NormKind::rms_norm, model, replicated(options, name + ".weight", {width}), {}};
}

ColumnParallel expanding_query(const LayerOptions& options, const std::string& name, const HeadSplit& split) {
  const ModelSpec& model = options.model;
  const bool is_direct = model.q_lora_rank == 0;
  return expanding(options, name + (is_direct ? ".q_proj" : ".q_b_proj"), split,
                   is_direct ? model.hidden_size : model.q_lora_rank, model.head_dim);
}

ColumnParallel expanding_keys(const LayerOptions& options, const std::string& name, const HeadSplit& split) {
  return expanding(options, name + ".kv_b_proj", split, options.model.kv_lora_rank, expanded_head(options.model));
}

}  // namespace echelon
