// Mixtures of experts in place of the feed-forward branch (Shazeer et al. 2017, arXiv:1701.06538): which layers have
// them, how many there are, and how a token's experts are chosen. Field names follow Hugging Face's config.json of the
// Qwen3-MoE and DeepSeek-V3 families.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace echelon {

enum class RouterScores : std::uint8_t { softmax, sigmoid };
[[nodiscard]] constexpr std::string_view name_of(RouterScores scores) {
  return scores == RouterScores::softmax ? "softmax" : "sigmoid";
}

struct MixtureSpec {
  std::int64_t num_experts = 0;  // 0: every layer is dense
  std::int64_t num_experts_per_tok = 2;
  std::int64_t moe_intermediate_size = 0;  // of an expert
  RouterScores scoring_func = RouterScores::softmax;
  bool norm_topk_prob = false;  // weights of a token are divided by their sum
  double routed_scaling_factor = 1.0;
  std::int64_t n_group = 1, topk_group = 1;          // a token's experts are in topk_group of n_group groups,
  bool sums_two_of_group = false;                    // which are chosen by the sum of their two best, or by their best
  bool has_bias = false;                             // of the choice (DeepSeek-V3), which is saved with the weights
  std::int64_t shared_expert_intermediate_size = 0;  // of an expert of every token; 0: there is none
  bool gates_shared_expert = false;                  // by a sigmoid of the token (Qwen2-MoE)

  // Layers with experts: from first_k_dense_replace on every decoder_sparse_step-th, without mlp_only_layers.
  std::int64_t first_k_dense_replace = 0, decoder_sparse_step = 1;
  std::vector<std::int64_t> mlp_only_layers = {};

  bool operator==(const MixtureSpec&) const = default;

  [[nodiscard]] bool exists() const { return num_experts > 0; }
  [[nodiscard]] bool is_in(std::int64_t layer) const;
  [[nodiscard]] bool is_in_all_layers() const {
    return exists() && first_k_dense_replace == 0 && decoder_sparse_step == 1 && mlp_only_layers.empty();
  }
  void put_in_all_layers() {
    first_k_dense_replace = 0;
    decoder_sparse_step = 1;
    mlp_only_layers.clear();
  }
  /// The first layer after `layer` that has experts where it has none, or none where it has some; or the number of
  /// layers.
  [[nodiscard]] std::int64_t end_of_kind_from(std::int64_t layer, std::int64_t num_layers) const;
  /// How many of the first `num_layers` have experts.
  [[nodiscard]] std::int64_t num_layers_of(std::int64_t num_layers) const;
  /// Of a layer with so many experts: theirs, the router's and those of the shared expert.
  [[nodiscard]] std::int64_t num_parameters(std::int64_t hidden_size, std::int64_t of_experts) const;
  /// The fewest features of an expert.
  [[nodiscard]] std::int64_t narrowest() const;
};

/// Of a model with experts. Throws Error with the key, the value and the fix.
void validate(const MixtureSpec& mixture);

}  // namespace echelon
