#include "nn/mixture/exchange_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace echelon {

ExchangePlan::ExchangePlan(int num_ranks, int rank, std::int64_t most_rows)
    : rank_(rank),
      most_rows_(most_rows),
      sent_(static_cast<std::size_t>(num_ranks)),
      to_this_(static_cast<std::size_t>(num_ranks)),
      received_(static_cast<std::size_t>(num_ranks)) {}

ExchangePlan::ExchangePlan(std::span<const std::int32_t> offsets, int num_ranks, int rank, std::int64_t most_rows)
    : ExchangePlan(num_ranks, rank, most_rows) {
  const std::size_t of_rank = offsets.size() / static_cast<std::size_t>(num_ranks), experts = of_rank - 1,
                    per_rank = experts / static_cast<std::size_t>(num_ranks);
  for (int source = 0; source < num_ranks; ++source) {
    const auto own = offsets.subspan(static_cast<std::size_t>(source) * of_rank, of_rank);
    for (int target = 0; target < num_ranks; ++target) {
      const std::size_t first = static_cast<std::size_t>(target) * per_rank;
      add(source, target, {own[first], own[first + per_rank] - own[first]});
    }
  }
  count_rounds();
}

// Remainders go to other ranks from each source, so that no rank receives more than R rows: source s sends one row more
// to target t where (s + t) % num_ranks < longer.
ExchangePlan ExchangePlan::balanced(std::int64_t num_rows, int num_ranks, int rank, std::int64_t most_rows) {
  ExchangePlan plan(num_ranks, rank, most_rows);
  const std::int64_t least = num_rows / num_ranks, longer = num_rows % num_ranks;
  const auto rows_before = [&](std::int64_t sum) {  // of all pairs with a smaller s + t, the sums from 0 on
    return sum * least + sum / num_ranks * longer + std::min(sum % num_ranks, longer);
  };
  const auto rows_between = [&](std::int64_t fixed, std::int64_t end) {  // of one rank with ranks 0..end
    return rows_before(fixed + end) - rows_before(fixed);
  };
  for (int other = 0; other < num_ranks; ++other) {
    const auto index = static_cast<std::size_t>(other);
    const std::int64_t count = rows_before(rank + other + 1) - rows_before(rank + other);
    plan.sent_[index] = {{rows_between(rank, other), count}, rows_between(other, rank)};
    plan.to_this_[index] = {{rows_between(other, rank), count}, rows_between(rank, other)};
    plan.received_[index] = num_rows;
  }
  plan.count_rounds();
  return plan;
}

ExchangePlan ExchangePlan::of_shares(std::span<const double> shares, std::int64_t num_rows, int rank,
                                     std::int64_t most_rows) {
  const int num_ranks = static_cast<int>(shares.size());
  constexpr double rounding = 1e-9;
  const bool drops = std::accumulate(shares.begin(), shares.end(), 0.0) < 1 - rounding;
  ExchangePlan plan(num_ranks, rank, most_rows);
  for (int source = 0; source < num_ranks; ++source) {
    double part = 0;
    std::int64_t first = 0;
    for (int target = 0; target < num_ranks; ++target) {
      const double share = shares[static_cast<std::size_t>((target - rank + num_ranks) % num_ranks)],
                   rows = static_cast<double>(num_rows);
      part += share;
      // Of few rows less than one is kept. A rank has one of its own then: types of layouts follow rows.
      const std::int64_t least = source == rank && target == rank ? std::min<std::int64_t>(num_rows, 1) : 0,
                         kept = std::max(least, static_cast<std::int64_t>(share * rows + rounding)),
                         end = drops ? first + kept : std::min<std::int64_t>(num_rows, std::llround(part * rows));
      plan.add(source, target, {first, end - first});
      first = end;
    }
  }
  plan.count_rounds();
  return plan;
}

void ExchangePlan::add(int source, int target, RowPart rows) {
  std::int64_t& received = received_[static_cast<std::size_t>(target)];
  if (source == rank_) sent_[static_cast<std::size_t>(target)] = {rows, received};
  if (target == rank_) to_this_[static_cast<std::size_t>(source)] = {rows, received};
  received += rows.count;
}

std::int64_t ExchangePlan::num_sent() const {
  std::int64_t sum = 0;
  for (const Rows& rows : sent_) sum += rows.of_source.count;
  return sum;
}

void ExchangePlan::count_rounds() {
  const std::int64_t most = *std::ranges::max_element(received_);
  num_rounds_ = static_cast<int>(std::max<std::int64_t>(1, (most + most_rows_ - 1) / most_rows_));
}

RowPart ExchangePlan::part(const Rows& rows, int round) const {
  const std::int64_t start = rows.before, end = start + rows.of_source.count;
  const std::int64_t first = std::clamp(first_row(round), start, end),
                     last = std::clamp(first_row(round + 1), start, end);
  return {first - start, last - first};
}

ExchangeRound ExchangePlan::round(int index) const {
  ExchangeRound round;
  for (std::size_t other = 0; other < sent_.size(); ++other) {
    RowPart sent = part(sent_[other], index), received = part(to_this_[other], index);
    sent.first += sent_[other].of_source.first;
    received.first += to_this_[other].before - first_row(index);
    // An empty part may start outside of the round.
    round.sent.push_back(sent.count == 0 ? RowPart() : sent);
    round.received.push_back(received.count == 0 ? RowPart() : received);
  }
  return round;
}

}  // namespace echelon
