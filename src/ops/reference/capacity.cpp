// The capacity of experts: for each row, how many rows of its expert and sequence come before it.
#include "ops/reference/reference_ops.h"

#include <cmath>
#include <limits>

namespace echelon {
namespace {

double weight_of(const Tensor& weights, std::int64_t row) {
  if (!weights.exists()) return 0;
  const double weight = weights.dtype == DType::float64 ? weights.as<double>()[row] : weights.as<float>()[row];
  return std::isnan(weight) ? -std::numeric_limits<double>::infinity() : weight;
}

bool is_before(const LimitExpertsArgs& args, std::int64_t a, std::int64_t b) {
  const std::int64_t k = args.of_sequences.size(1), T = args.tokens_per_sequence;
  const auto* const experts = args.of_sequences.as<std::int32_t>();
  const auto* const places = args.places.as<std::int32_t>();
  if (experts[a] != experts[b] || (places[a / k] - 1) / T != (places[b / k] - 1) / T) return false;
  const double of_a = weight_of(args.weights, a), of_b = weight_of(args.weights, b);
  return of_a != of_b ? of_a > of_b : places[a / k] < places[b / k];
}

}  // namespace

void ReferenceOps::compute(const LimitExpertsArgs& args) {
  const std::int64_t first = args.first_token * args.of_sequences.size(1);
  for (std::int64_t i = 0; i < args.kept.num_elements(); ++i) {
    std::int64_t before = 0;
    for (std::int64_t other = 0; other < args.of_sequences.num_elements(); ++other)
      if (is_before(args, other, first + i)) ++before;
    args.kept.as<std::int32_t>()[i] = before < args.capacity ? args.experts.as<std::int32_t>()[i] : -1;
  }
}

}  // namespace echelon
