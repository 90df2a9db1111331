#include "nn/mixture/node_plan.h"

#include "nn/mixture/row_parts.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace echelon {

NodePlan::NodePlan(const NodeSizes& sizes, std::vector<std::int32_t> choices, int least_rounds)
    : sizes_(sizes), choices_(std::move(choices)), num_rounds_(std::max(1, least_rounds)) {
  for (double load = highest_load(num_rounds_); load > 1; load = highest_load(num_rounds_)) {
    const auto guess = static_cast<int>(std::ceil(load * num_rounds_));
    num_rounds_ = static_cast<int>(std::min<std::int64_t>(std::max(guess, num_rounds_ + 1), sizes_.num_tokens));
  }
}

bool NodePlan::goes_to(const std::int32_t* experts, int node) const {
  const auto is_there = [&](std::int32_t expert) { return expert >= 0 && expert / sizes_.experts_per_node() == node; };
  return sizes_.gives_all() || std::any_of(experts, experts + sizes_.experts_per_token, is_there);
}

double NodePlan::highest_load(int num_rounds) const {
  const auto P = static_cast<std::size_t>(sizes_.num_ranks()), rounds = static_cast<std::size_t>(num_rounds);
  std::vector<std::int64_t> tokens(rounds * P), copies(rounds * P), rows(rounds * P);
  const std::int64_t of_rank = sizes_.experts_per_rank();
  const int L = sizes_.ranks_per_node;
  std::vector<std::int64_t> seen(static_cast<std::size_t>(sizes_.num_nodes), -1);
  std::int64_t id = 0;
  for (int place = 0; place < L; ++place)
    for (int node = 0; node < sizes_.num_nodes; ++node)
      for (std::int64_t token = 0; token < sizes_.num_tokens; ++token, ++id) {
        const std::int32_t* experts = experts_of(node, place, token);
        const std::size_t round = static_cast<std::size_t>(token % num_rounds) * P;
        for (std::int64_t j = 0; j < sizes_.experts_per_token; ++j) {
          if (experts[j] < 0) continue;
          const auto rank = static_cast<std::size_t>(experts[j] / of_rank), target = rank / static_cast<std::size_t>(L),
                     gateway = target * static_cast<std::size_t>(L) + static_cast<std::size_t>(place);
          ++rows[round + rank];
          ++copies[round + gateway];
          if (std::exchange(seen[target], id) != id) ++tokens[round + gateway];
        }
      }
  const auto load = [](const std::vector<std::int64_t>& of, std::int64_t most) {
    return static_cast<double>(*std::ranges::max_element(of)) / static_cast<double>(most);
  };
  if (sizes_.gives_all()) tokens = {sizes_.num_nodes * ((sizes_.num_tokens + num_rounds - 1) / num_rounds)};
  return std::max({load(tokens, sizes_.most_tokens), load(copies, sizes_.most_copies), load(rows, sizes_.most_rows)});
}

const NodeRound& NodePlan::round(int index) const {
  auto& [known, round] = last_[static_cast<std::size_t>(index % 2)];
  if (std::exchange(known, index) != index) round = choices_.empty() ? planned_round(index) : chosen_round(index);
  return round;
}

NodeRound NodePlan::chosen_round(int index) const {
  NodeRound round;
  const int place = sizes_.place();
  std::vector<std::int64_t> received;
  std::int64_t first = 0;
  for (int node = 0; node < sizes_.num_nodes; ++node) {
    RowPart sent;
    std::int64_t before = 0, all = 0, come = 0;
    for (int each = 0; each < num_rounds_; ++each) {
      if (each == index) before = all;
      for (std::int64_t token = each; token < sizes_.num_tokens; token += num_rounds_)
        if (goes_to(experts_of(sizes_.node(), place, token), node)) ++all, sent.count += each == index ? 1 : 0;
    }
    for (std::int64_t token = index; token < sizes_.num_tokens; token += num_rounds_)
      come += goes_to(experts_of(node, place, token), sizes_.node()) ? 1 : 0;
    sent.first = sent.count > 0 ? first + before : 0;
    if (!sizes_.gives_all()) first += all;
    round.sent_across.push_back(sent);
    received.push_back(come);
  }
  round.received_across = in_a_row(received, sizes_.most_tokens);
  round.num_tokens = sum_of(round.received_across);
  add_copies(round, index);
  add_arrivals(round, index);
  return round;
}

void NodePlan::add_copies(NodeRound& round, int index) const {
  const std::int64_t k = sizes_.experts_per_token, first_expert = sizes_.first_expert_of_node(),
                     of_node = sizes_.experts_per_node(), of_rank = sizes_.experts_per_rank();
  const auto each_copy = [&](const auto& f) {
    std::int64_t row = 0;
    for (int node = 0; node < sizes_.num_nodes; ++node)
      for (std::int64_t token = index; token < sizes_.num_tokens; token += num_rounds_) {
        const std::int32_t* experts = experts_of(node, sizes_.place(), token);
        if (!goes_to(experts, sizes_.node())) continue;
        for (std::int64_t j = 0; j < k; ++j)
          if (experts[j] >= first_expert && experts[j] < first_expert + of_node)
            f(static_cast<std::size_t>(row * k + j), static_cast<std::size_t>(experts[j] - first_expert));
        ++row;
      }
  };
  std::vector<std::int64_t> next(static_cast<std::size_t>(of_node) + 1);
  each_copy([&](std::size_t, std::size_t expert) { ++next[expert + 1]; });
  for (std::size_t e = 1; e < next.size(); ++e) next[e] += next[e - 1];
  for (int place = 0; place < sizes_.ranks_per_node; ++place) {
    const std::int64_t first = next[static_cast<std::size_t>(place * of_rank)];
    round.sent_inside.push_back({first, next[static_cast<std::size_t>((place + 1) * of_rank)] - first});
  }
  round.num_copies = next.back();
  round.copies.assign(static_cast<std::size_t>(round.num_tokens * k), -1);
  each_copy([&](std::size_t at, std::size_t expert) { round.copies[at] = static_cast<std::int32_t>(next[expert]++); });
}

// From each place of this node come its copies for the experts here, ordered by expert.
void NodePlan::add_arrivals(NodeRound& round, int index) const {
  const auto E = static_cast<std::size_t>(sizes_.experts_per_rank());
  const std::int64_t first_expert = sizes_.first_expert_of_rank();
  std::vector<std::int64_t> counts(static_cast<std::size_t>(sizes_.ranks_per_node) * E);
  std::vector<std::int64_t> received;
  for (int place = 0; place < sizes_.ranks_per_node; ++place) {
    std::int64_t* const of_place = counts.data() + static_cast<std::size_t>(place) * E;
    std::int64_t come = 0;
    for (int node = 0; node < sizes_.num_nodes; ++node)
      for (std::int64_t token = index; token < sizes_.num_tokens; token += num_rounds_) {
        const std::int32_t* experts = experts_of(node, place, token);
        for (std::int64_t j = 0; j < sizes_.experts_per_token; ++j)
          if (experts[j] >= first_expert && experts[j] < first_expert + static_cast<std::int64_t>(E))
            ++of_place[experts[j] - first_expert], ++come;
      }
    received.push_back(come);
  }
  round.received_inside = in_a_row(received, sizes_.most_rows);
  round.num_rows = sum_of(round.received_inside);
  round.slots.resize(static_cast<std::size_t>(round.num_rows));
  round.offsets.push_back(0);
  std::vector<std::int64_t> next;  // of each place, where its rows of the current expert come
  for (const RowPart& part : round.received_inside) next.push_back(part.first);
  std::int32_t slot = 0;
  for (std::size_t e = 0; e < E; ++e) {
    for (std::size_t place = 0; place < next.size(); ++place)
      for (std::int64_t i = 0; i < counts[place * E + e]; ++i)
        round.slots[static_cast<std::size_t>(next[place]++)] = slot++;
    round.offsets.push_back(slot);
  }
}

std::int64_t NodePlan::num_sent() const {
  if (sizes_.gives_all()) return sizes_.num_tokens;
  std::int64_t rows = 0;
  if (choices_.empty()) {
    for (const std::int64_t tokens : planned_tokens()) rows += tokens;
    return rows;
  }
  for (int node = 0; node < sizes_.num_nodes; ++node)
    for (std::int64_t token = 0; token < sizes_.num_tokens; ++token)
      rows += goes_to(experts_of(sizes_.node(), sizes_.place(), token), node) ? 1 : 0;
  return rows;
}

// Ordered by node, then by round, then by token.
std::vector<std::int32_t> NodePlan::sent_slots() const {
  const std::int64_t columns = sizes_.parts_per_token();
  std::vector<std::int32_t> slots(static_cast<std::size_t>(sizes_.num_tokens * columns), -1);
  std::vector<std::int64_t> num_nodes(static_cast<std::size_t>(sizes_.num_tokens));
  std::int32_t row = 0;
  for (int node = 0; node < sizes_.num_parts(); ++node)
    for (int round = 0; round < num_rounds_; ++round)
      for (std::int64_t token = round; token < sizes_.num_tokens; token += num_rounds_)
        if (goes_to(experts_of(sizes_.node(), sizes_.place(), token), node))
          slots[static_cast<std::size_t>(token * columns + num_nodes[static_cast<std::size_t>(token)]++)] = row++;
  return slots;
}

}  // namespace echelon
