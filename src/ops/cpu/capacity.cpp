// The capacity of experts: rows are sorted by sequence and expert, and then by what comes first.
#include "ops/cpu/cpu_ops.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <limits>
#include <tuple>
#include <vector>

namespace echelon {
namespace {

struct RowOfExpert {
  std::int64_t sequence;
  std::int32_t expert, place;
  double weight;
  std::int64_t index;

  [[nodiscard]] bool has_expert_of(const RowOfExpert& other) const {
    return sequence == other.sequence && expert == other.expert;
  }
  bool operator<(const RowOfExpert& other) const {
    return std::tie(sequence, expert, other.weight, place) <
           std::tie(other.sequence, other.expert, weight, other.place);
  }
};

template <class W>
double weight_of_row(const Tensor& weights, std::int64_t row) {
  const W weight = weights.as<W>()[row];
  return std::isnan(weight) ? -std::numeric_limits<double>::infinity() : static_cast<double>(weight);
}

std::vector<RowOfExpert> rows_of_experts(const LimitExpertsArgs& args) {
  const std::int64_t k = args.of_sequences.size(1);
  std::vector<RowOfExpert> rows;
  rows.reserve(static_cast<std::size_t>(args.of_sequences.num_elements()));
  for (std::int64_t i = 0; i < args.of_sequences.num_elements(); ++i) {
    const std::int32_t expert = args.of_sequences.as<std::int32_t>()[i], place = args.places.as<std::int32_t>()[i / k];
    if (expert < 0) continue;
    const double weight = !args.weights.exists()                 ? 0
                          : args.weights.dtype == DType::float64 ? weight_of_row<double>(args.weights, i)
                                                                 : weight_of_row<float>(args.weights, i);
    rows.push_back({(place - 1) / args.tokens_per_sequence, expert, place, weight, i});
  }
  return rows;
}

}  // namespace

void CpuOps::compute(const LimitExpertsArgs& args) {
  std::vector<RowOfExpert> rows = rows_of_experts(args);
  std::ranges::sort(rows, std::less());
  const std::int64_t first = args.first_token * args.of_sequences.size(1), num_own = args.kept.num_elements();
  auto* const kept = args.kept.as<std::int32_t>();
  std::fill_n(kept, num_own, -1);
  std::int64_t before = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    before = i > 0 && rows[i].has_expert_of(rows[i - 1]) ? before + 1 : 0;
    const std::int64_t own = rows[i].index - first;
    if (before < args.capacity && own >= 0 && own < num_own) kept[own] = rows[i].expert;
  }
}

}  // namespace echelon
