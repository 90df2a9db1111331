#include "nn/mixture/feature_plan.h"

namespace echelon {

FeaturePlan::FeaturePlan(const FeatureSizes& sizes, std::vector<std::int32_t> offsets, int least_rounds)
    : sizes_(sizes), offsets_(std::move(offsets)) {
  const std::size_t of_place = offsets_.size() / static_cast<std::size_t>(sizes.num_places);
  for (int place = 0; place < sizes.num_places; ++place)
    places_.emplace_back(std::span(offsets_).subspan(static_cast<std::size_t>(place) * of_place, of_place),
                         sizes.num_parts, sizes.part(), sizes.most_rows);
  take_rounds(least_rounds);
}

FeaturePlan::FeaturePlan(const FeatureSizes& sizes, std::span<const double> shares) : sizes_(sizes) {
  const ExchangePlan plan = shares.empty()
                                ? ExchangePlan::balanced(sizes.num_rows, sizes.num_parts, sizes.part(), sizes.most_rows)
                                : ExchangePlan::of_shares(shares, sizes.num_rows, sizes.part(), sizes.most_rows);
  places_.assign(static_cast<std::size_t>(sizes.num_places), plan);
}

void FeaturePlan::take_rounds(int at_least) {
  for (const ExchangePlan& plan : places_) at_least = std::max(at_least, plan.num_rounds());
  for (ExchangePlan& plan : places_) plan.take_rounds(at_least);
}

FeatureRound FeaturePlan::round(int index) const {
  FeatureRound round = {.across = own().round(index), .num_come = own().num_received(index)};
  std::vector<std::int64_t> counts;
  for (const ExchangePlan& plan : places_) counts.push_back(plan.num_received(index));
  round.given.assign(places_.size(), {0, round.num_come});
  round.gathered = in_a_row(counts, sizes_.most_gathered());
  round.num_gathered = sum_of(round.gathered);
  return round;
}

std::int64_t FeaturePlan::num_received(int round) const {
  std::int64_t rows = 0;
  for (const ExchangePlan& plan : places_) rows += plan.num_received(round);
  return rows;
}

// What comes to a place is ordered by the rank that it is from, and of a rank by expert.
FeaturePlan::Order FeaturePlan::order(int round) const {
  if (offsets_.empty()) return {};
  const std::int64_t E = sizes_.num_experts / sizes_.num_parts, first_expert = sizes_.part() * E,
                     first = own().first_row(round), end = own().first_row(round + 1);
  std::vector<std::int64_t> experts;  // of the rows as they are gathered
  const std::int32_t* of_rank = offsets_.data() + first_expert;
  for (int place = 0; place < sizes_.num_places; ++place) {
    std::int64_t row = 0;
    for (int part = 0; part < sizes_.num_parts; ++part, of_rank += sizes_.num_experts + 1)
      for (std::int64_t e = 0; e < E; ++e) {
        const std::int64_t next = row + of_rank[e + 1] - of_rank[e];
        const std::int64_t count = std::min(next, end) - std::max(row, first);
        if (count > 0) experts.insert(experts.end(), static_cast<std::size_t>(count), e);
        row = next;
      }
  }
  Order order;
  order.offsets.resize(static_cast<std::size_t>(E) + 1);
  for (const std::int64_t e : experts) ++order.offsets[static_cast<std::size_t>(e) + 1];
  for (std::size_t e = 1; e < order.offsets.size(); ++e) order.offsets[e] += order.offsets[e - 1];
  std::vector<std::int32_t> next = order.offsets;
  for (const std::int64_t e : experts) order.slots.push_back(next[static_cast<std::size_t>(e)]++);
  return order;
}

std::vector<std::int32_t> FeaturePlan::addends(int round) const {
  const auto rows = static_cast<std::int32_t>(own().num_received(round));
  std::vector<std::int32_t> slots;
  for (std::int32_t row = 0; row < rows; ++row)
    for (std::int32_t place = 0; place < sizes_.num_places; ++place) slots.push_back(place * rows + row);
  return slots;
}

}  // namespace echelon
