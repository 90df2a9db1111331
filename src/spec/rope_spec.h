// Rotary positions (Su et al. 2021, arXiv:2104.09864) as config.json describes them: rope_parameters, or rope_theta and
// rope_scaling. The formulas: nn/decoder/rope_tables.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace echelon {

/// How frequencies are scaled for more positions than the model was first trained with. dynamic equals no scaling up to
/// max_position_embeddings, and Echelon has no longer sequences.
enum class RopeType : std::uint8_t { llama3, linear, dynamic, yarn, longrope };
[[nodiscard]] std::string_view name_of(RopeType type);
[[nodiscard]] std::optional<RopeType> find_rope_type(std::string_view name);

struct RopeScaling {
  RopeType rope_type = RopeType::llama3;
  double factor = 8.0;
  double low_freq_factor = 1.0;  // llama3
  double high_freq_factor = 4.0;
  std::int64_t original_max_position_embeddings = 8192;  // of llama3, yarn and longrope
  double beta_fast = 32.0;                               // yarn
  double beta_slow = 1.0;
  double mscale = 0;  // 0: not given
  double mscale_all_dim = 0;
  bool truncate = true;
  double attention_factor = 0;            // of yarn and longrope; 0: from factor
  std::vector<double> short_factor = {};  // longrope, a value for each pair
  std::vector<double> long_factor = {};
  double llama_4_scaling_beta = 0;  // queries grow with their positions (Ministral 3)
  bool operator==(const RopeScaling&) const = default;
};

struct RopeSpec {
  double rope_theta = 10000.0;
  std::optional<RopeScaling> scaling = {};
  bool is_of_queries = false;  // alone, where they grow
  bool operator==(const RopeSpec&) const = default;
};

/// Throws Error with the key, below `prefix` ("model."), the value and a valid one. num_pairs: those that turn.
void validate(const RopeSpec& rope, std::string_view prefix, std::int64_t num_pairs);

}  // namespace echelon
