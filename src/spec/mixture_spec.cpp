#include "spec/mixture_spec.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace echelon {
namespace {

constexpr std::int64_t most_experts = 8192, most_groups = 32;  // of the router's operations

std::int64_t closest_number_of_groups(const MixtureSpec& m) {
  std::int64_t groups = std::clamp<std::int64_t>(m.n_group, 1, std::min(most_groups, m.num_experts));
  while (m.num_experts % groups != 0 || (m.sums_two_of_group && groups > 1 && m.num_experts / groups < 2)) --groups;
  return groups;
}

void validate_groups(const MixtureSpec& m) {
  const std::int64_t groups = closest_number_of_groups(m);
  require(m.n_group == groups,
          "model.n_group = {} does not divide model.num_experts = {} into at most 32 groups{} (use {})", m.n_group,
          m.num_experts, m.sums_two_of_group ? " of two experts or more" : "", groups);
  const std::int64_t size = m.num_experts / groups, fewest = (m.num_experts_per_tok + size - 1) / size;
  require(m.topk_group >= fewest && m.topk_group <= groups,
          "model.topk_group = {} is not between {}, which have model.num_experts_per_tok = {} experts, and "
          "model.n_group = {} (use {})",
          m.topk_group, fewest, m.num_experts_per_tok, groups, std::clamp(m.topk_group, fewest, groups));
}

}  // namespace

bool MixtureSpec::is_in(std::int64_t layer) const {
  return exists() && layer >= first_k_dense_replace && (layer + 1) % decoder_sparse_step == 0 &&
         std::ranges::find(mlp_only_layers, layer) == mlp_only_layers.end();
}

std::int64_t MixtureSpec::end_of_kind_from(std::int64_t layer, std::int64_t num_layers) const {
  if (!exists() || is_in_all_layers()) return num_layers;
  if (decoder_sparse_step == 1 && mlp_only_layers.empty())
    return layer < first_k_dense_replace ? std::min(first_k_dense_replace, num_layers) : num_layers;
  const bool is_here = is_in(layer);
  std::int64_t end = layer + 1;
  while (end < num_layers && is_in(end) == is_here) ++end;
  return end;
}

std::int64_t MixtureSpec::num_layers_of(std::int64_t num_layers) const {
  std::int64_t count = 0;
  for (std::int64_t layer = 0; exists() && layer < num_layers; ++layer) count += is_in(layer) ? 1 : 0;
  return count;
}

std::int64_t MixtureSpec::num_parameters(std::int64_t hidden_size, std::int64_t of_experts) const {
  constexpr std::int64_t gate_up_and_down = 3;
  return hidden_size * (num_experts + (gates_shared_expert ? 1 : 0) +
                        gate_up_and_down * (of_experts * moe_intermediate_size + shared_expert_intermediate_size));
}

std::int64_t MixtureSpec::narrowest() const {
  return shared_expert_intermediate_size > 0 ? std::min(moe_intermediate_size, shared_expert_intermediate_size)
                                             : moe_intermediate_size;
}

void validate(const MixtureSpec& m) {
  require(m.num_experts >= 1 && m.num_experts <= most_experts,
          "model.num_experts = {} is not between 1 and 8192 (use {})", m.num_experts,
          std::clamp<std::int64_t>(m.num_experts, 1, most_experts));
  require(m.num_experts_per_tok >= 1 && m.num_experts_per_tok <= m.num_experts,
          "model.num_experts_per_tok = {} is not between 1 and model.num_experts = {} (use {})", m.num_experts_per_tok,
          m.num_experts, std::clamp<std::int64_t>(m.num_experts_per_tok, 1, m.num_experts));
  const std::tuple<const char*, std::int64_t, std::int64_t> sizes[] = {
      {"moe_intermediate_size", m.moe_intermediate_size, 1},
      {"shared_expert_intermediate_size", m.shared_expert_intermediate_size, 0},
      {"first_k_dense_replace", m.first_k_dense_replace, 0},
      {"decoder_sparse_step", m.decoder_sparse_step, 1}};
  constexpr std::int64_t most = (std::int64_t{1} << 31) - 1;
  for (const auto& [key, value, least] : sizes)
    require(value >= least && value <= most, "model.{} = {} is not between {} and {} (use {})", key, value, least, most,
            std::clamp(value, least, most));
  require(m.routed_scaling_factor > 0 && std::isfinite(m.routed_scaling_factor),
          "model.routed_scaling_factor = {} is not a number above 0 (use 1)", m.routed_scaling_factor);
  validate_groups(m);
}

}  // namespace echelon
