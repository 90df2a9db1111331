#include "nn/decoder/rope_tables.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace echelon {
namespace {

constexpr double two_pi = 2.0 * std::numbers::pi;

// Wavelengths that fit often into the original context stay, those that hardly fit are stretched by `factor`, and
// between the two it goes over linearly.
void scale_llama3(const RopeScaling& scaling, std::vector<double>& frequencies) {
  for (double& frequency : frequencies) {
    const double turns = static_cast<double>(scaling.original_max_position_embeddings) * frequency / two_pi;
    const double share =
        std::clamp((turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor), 0.0, 1.0);
    if (share == 0.0) frequency /= scaling.factor;
    if (share > 0.0 && share < 1.0) frequency = (1.0 - share) * frequency / scaling.factor + share * frequency;
  }
}

// The pair (a fraction, too) that makes so many turns over the original positions.
double pair_with_turns(double turns, const RopeSpec& rope, std::int64_t rotary_dim) {
  const auto positions = static_cast<double>(rope.scaling->original_max_position_embeddings);
  return static_cast<double>(rotary_dim) * std::log(positions / (turns * two_pi)) / (2 * std::log(rope.rope_theta));
}

// Pairs with more than beta_fast turns stay, those with less than beta_slow are stretched by `factor`.
void scale_yarn(const RopeSpec& rope, std::vector<double>& frequencies) {
  const RopeScaling& scaling = *rope.scaling;
  const std::int64_t rotary_dim = 2 * std::ssize(frequencies);
  double low = pair_with_turns(scaling.beta_fast, rope, rotary_dim),
         high = pair_with_turns(scaling.beta_slow, rope, rotary_dim);
  if (scaling.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rotary_dim - 1));
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / scaling.factor * stretched + frequencies[i] * (1.0 - stretched);
  }
}

double yarn_attention_factor(const RopeScaling& scaling) {
  const auto of = [&](double mscale) {
    return scaling.factor <= 1 ? 1.0 : 0.1 * mscale * std::log(scaling.factor) + 1.0;
  };
  if (scaling.mscale > 0 && scaling.mscale_all_dim > 0) return of(scaling.mscale) / of(scaling.mscale_all_dim);
  return of(1.0);
}

double longrope_attention_factor(const RopeScaling& scaling) {
  if (scaling.factor <= 1) return 1.0;
  return std::sqrt(1 +
                   std::log(scaling.factor) / std::log(static_cast<double>(scaling.original_max_position_embeddings)));
}

void scale(const RopeSpec& rope, std::int64_t seq_len, Rotation& rotation) {
  const RopeScaling& scaling = *rope.scaling;
  std::vector<double>& frequencies = rotation.frequencies;
  const auto factor_or = [&](double usual) { return scaling.attention_factor > 0 ? scaling.attention_factor : usual; };
  switch (scaling.rope_type) {
    case RopeType::dynamic: return;
    case RopeType::linear:
      for (double& frequency : frequencies) frequency /= scaling.factor;
      return;
    case RopeType::llama3: return scale_llama3(scaling, frequencies);
    case RopeType::yarn:
      scale_yarn(rope, frequencies);
      rotation.attention_factor = factor_or(yarn_attention_factor(scaling));
      return;
    case RopeType::longrope: {
      const bool is_long = seq_len > scaling.original_max_position_embeddings;
      const std::vector<double>& factors = is_long ? scaling.long_factor : scaling.short_factor;
      if (factors.size() != frequencies.size()) throw Failure("longrope has other factors than the head has pairs");
      for (std::size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors[i];
      rotation.attention_factor = factor_or(longrope_attention_factor(scaling));
      return;
    }
  }
}

template <class T>
void upload_as(Ops& ops, const Rotation& rotation, const RopeTables& tables, std::span<const std::int32_t> positions) {
  std::vector<T> cos, sin;
  for (std::int64_t row = 0; row < tables.cos.size(0); ++row) {
    const std::int64_t position = positions.empty()             ? row
                                  : row < std::ssize(positions) ? positions[static_cast<std::size_t>(row)]
                                                                : 0;
    const double factor = rotation.factor_at(position);
    for (const double frequency : rotation.frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      cos.push_back(static_cast<T>(factor * std::cos(angle)));
      sin.push_back(static_cast<T>(factor * std::sin(angle)));
    }
  }
  ops.upload(tables.cos, cos.data());
  ops.upload(tables.sin, sin.data());
}

}  // namespace

Rotation rotation_of(const ModelSpec& model, const RopeSpec& rope, std::int64_t seq_len) {
  Rotation rotation;
  const std::int64_t R = model.rotary_dim();
  for (std::int64_t i = 0; i < R / 2; ++i)
    rotation.frequencies.push_back(std::pow(rope.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(R)));
  if (rope.scaling) scale(rope, seq_len, rotation);
  if (rope.is_of_queries && rope.scaling) {
    rotation.growth = rope.scaling->llama_4_scaling_beta;
    rotation.period = rope.scaling->original_max_position_embeddings;
  }
  return rotation;
}

void upload_rope_tables(Ops& ops, const Rotation& rotation, const RopeTables& tables,
                        std::span<const std::int32_t> positions) {
  if (tables.frequencies.exists()) ops.upload(tables.frequencies, rotation.frequencies.data());
  if (!tables.cos.exists()) return;
  if (!ops.computes_values())
    for (const Tensor& table : {tables.cos, tables.sin}) ops.upload(table, nullptr);
  else if (tables.cos.dtype == DType::float64)
    upload_as<double>(ops, rotation, tables, positions);
  else
    upload_as<float>(ops, rotation, tables, positions);
}

void rotate_heads(Context& context, const LayerOptions& options, const RopeTables& rope, const RotatedHeads& heads) {
  if (options.model.position != PositionKind::rope || !options.has_rope) return;
  context.ops.rope({.x = heads.x_BTHC,
                    .y = heads.x_BTHC,
                    .cos = rope.cos,
                    .sin = rope.sin,
                    .inverse = heads.inverse,
                    .first_position = heads.first_position,
                    .positions = options.has_positions ? context.microbatch.positions : Tensor(),
                    .frequencies = rope.frequencies,
                    .scale = rope.rotation.attention_factor,
                    .growth = rope.rotation.growth,
                    .period = rope.rotation.period});
}

}  // namespace echelon
