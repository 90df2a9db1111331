#include "spec/rope_spec.h"

#include "base/error.h"

#include <array>
#include <cmath>
#include <utility>

namespace echelon {
namespace {

constexpr std::array<std::pair<RopeType, std::string_view>, 5> rope_types = {{{RopeType::llama3, "llama3"},
                                                                              {RopeType::linear, "linear"},
                                                                              {RopeType::dynamic, "dynamic"},
                                                                              {RopeType::yarn, "yarn"},
                                                                              {RopeType::longrope, "longrope"}}};

class ScalingChecks {
 public:
  ScalingChecks(const RopeScaling& scaling, std::string_view prefix, std::int64_t num_pairs)
      : s_(scaling), prefix_(prefix), num_pairs_(num_pairs) {}

  void llama3() const {
    positive("low_freq_factor", s_.low_freq_factor, 1);
    require(s_.high_freq_factor > s_.low_freq_factor && std::isfinite(s_.high_freq_factor),
            "{}rope_scaling.high_freq_factor = {} is not above low_freq_factor = {} (use 4, the usual value)", prefix_,
            s_.high_freq_factor, s_.low_freq_factor);
  }
  void yarn() const {
    positive("beta_slow", s_.beta_slow, 1);
    require(s_.beta_fast >= s_.beta_slow && std::isfinite(s_.beta_fast),
            "{}rope_scaling.beta_fast = {} is below beta_slow = {} (use 32, the usual value)", prefix_, s_.beta_fast,
            s_.beta_slow);
    for (const auto& [key, value] : {std::pair{"mscale", s_.mscale}, {"mscale_all_dim", s_.mscale_all_dim}})
      require(value >= 0 && std::isfinite(value), "{}rope_scaling.{} = {} is not a number from 0 on (use 1)", prefix_,
              key, value);
    attention_factor();
  }
  void longrope() const {
    for (const auto& [key, list] : {std::pair{"short_factor", &s_.short_factor}, {"long_factor", &s_.long_factor}}) {
      require(std::ssize(*list) == num_pairs_, "{}rope_scaling.{} has {} values for {} pairs of columns (use {})",
              prefix_, key, list->size(), num_pairs_, num_pairs_);
      for (const double value : *list) positive(key, value, 1);
    }
    attention_factor();
  }
  void original_positions() const {
    require(s_.original_max_position_embeddings >= 2,
            "{}rope_scaling.original_max_position_embeddings = {} is below 2 (use 2)", prefix_,
            s_.original_max_position_embeddings);
  }

 private:
  void positive(std::string_view key, double value, double usual) const {
    require(value > 0 && std::isfinite(value), "{}rope_scaling.{} = {} is not above 0 (use {}, the usual value)",
            prefix_, key, value, usual);
  }
  void attention_factor() const {
    require(s_.attention_factor >= 0 && std::isfinite(s_.attention_factor),
            "{}rope_scaling.attention_factor = {} is not a number from 0 on (use 0: from factor)", prefix_,
            s_.attention_factor);
  }

  const RopeScaling& s_;
  std::string_view prefix_;
  std::int64_t num_pairs_;
};

}  // namespace

std::string_view name_of(RopeType type) {
  for (const auto& [candidate, name] : rope_types)
    if (candidate == type) return name;
  return "?";
}

std::optional<RopeType> find_rope_type(std::string_view wanted) {
  for (const auto& [type, name] : rope_types)
    if (name == wanted) return type;
  return std::nullopt;
}

void validate(const RopeSpec& rope, std::string_view prefix, std::int64_t num_pairs) {
  require(rope.rope_theta > 1 && std::isfinite(rope.rope_theta),
          "{}rope_theta = {} is not a number above 1 (use 10000, the usual value)", prefix, rope.rope_theta);
  if (!rope.scaling) return;
  const RopeScaling& s = *rope.scaling;
  require(s.factor >= 1 && std::isfinite(s.factor), "{}rope_scaling.factor = {} is not a number from 1 on (use 1)",
          prefix, s.factor);
  const ScalingChecks checks(s, prefix, num_pairs);
  require(s.llama_4_scaling_beta >= 0 && std::isfinite(s.llama_4_scaling_beta),
          "{}rope_scaling.llama_4_scaling_beta = {} is not a number from 0 on (use 0)", prefix, s.llama_4_scaling_beta);
  if (s.llama_4_scaling_beta > 0) checks.original_positions();
  switch (s.rope_type) {
    case RopeType::linear:
    case RopeType::dynamic: return;
    case RopeType::llama3: checks.llama3(); break;
    case RopeType::yarn: checks.yarn(); break;
    case RopeType::longrope: checks.longrope(); break;
  }
  checks.original_positions();
}

}  // namespace echelon
