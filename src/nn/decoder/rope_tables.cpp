#include "nn/decoder/rope_tables.h"

#include <cmath>
#include <numbers>

namespace echelon {
namespace {

// Wavelengths that fit often into the original context stay, those that hardly fit are stretched by `factor`, and
// between the two it goes over linearly.
double scaled(double frequency, const RopeScaling& scaling) {
  const double turns =
      static_cast<double>(scaling.original_max_position_embeddings) * frequency / (2.0 * std::numbers::pi);
  if (turns < scaling.low_freq_factor) return frequency / scaling.factor;
  if (turns > scaling.high_freq_factor) return frequency;
  const double share = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1.0 - share) * frequency / scaling.factor + share * frequency;
}

template <class T>
void upload_as(Ops& ops, const std::vector<double>& frequencies, const RopeTables& tables,
               std::span<const std::int32_t> positions) {
  std::vector<T> cos, sin;
  for (std::int64_t row = 0; row < tables.cos.size(0); ++row) {
    const std::int64_t position = positions.empty()             ? row
                                  : row < std::ssize(positions) ? positions[static_cast<std::size_t>(row)]
                                                                : 0;
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      cos.push_back(static_cast<T>(std::cos(angle)));
      sin.push_back(static_cast<T>(std::sin(angle)));
    }
  }
  ops.upload(tables.cos, cos.data());
  ops.upload(tables.sin, sin.data());
}

}  // namespace

std::vector<double> rope_frequencies(const ModelSpec& model) {
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < model.head_dim / 2; ++i) {
    const double frequency =
        std::pow(model.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(model.head_dim));
    frequencies.push_back(model.rope_scaling ? scaled(frequency, *model.rope_scaling) : frequency);
  }
  return frequencies;
}

void upload_rope_tables(Ops& ops, const ModelSpec& model, const RopeTables& tables,
                        std::span<const std::int32_t> positions) {
  const std::vector<double> frequencies = rope_frequencies(model);
  if (tables.frequencies.exists()) ops.upload(tables.frequencies, frequencies.data());
  if (!tables.cos.exists()) return;
  if (!ops.computes_values())
    for (const Tensor& table : {tables.cos, tables.sin}) ops.upload(table, nullptr);
  else if (tables.cos.dtype == DType::float64)
    upload_as<double>(ops, frequencies, tables, positions);
  else
    upload_as<float>(ops, frequencies, tables, positions);
}

}  // namespace echelon
