#include "schedule/gradient_chains.h"

#include <algorithm>
#include <utility>

namespace echelon {

std::vector<Action> GradientChains::links_of(const Gradient& gradient) const {
  const auto& [part, place, writers, is_last] = gradient;
  const auto& sums = options_.stages[part.stage].unit_sums_replicas;
  const bool sums_replicas = part.unit < static_cast<int>(sums.size()) && sums[part.unit];
  std::vector<Action> links;
  const auto link = [&](ActionKind kind) {
    links.push_back({.kind = kind, .stage = place.stage, .microbatch = place.microbatch, .unit = place.unit});
  };
  const auto link_of_step = [&](ActionKind kind) {
    links.push_back({.kind = kind, .stage = part.stage, .unit = part.unit});
  };
  if (options_.reduces_gradients) link(ActionKind::reduce_gradients);
  if (options_.stores_gradients()) link(ActionKind::store_gradients);
  if (is_last && options_.reduces_parts) link_of_step(ActionKind::reduce_parts);
  if (is_last && sums_replicas) link_of_step(ActionKind::sum_replicas);
  return links;
}

void GradientChains::begin(const Gradient& gradient, int count_tokens) {
  Chain chain{gradient.part, links_of(gradient)};
  done_[gradient.part] = *std::max_element(gradient.writers.begin(), gradient.writers.end());
  if (chain.links.empty()) return;
  std::vector<int> after = gradient.writers;
  if (chain.links.front().kind == ActionKind::reduce_gradients) after.push_back(count_tokens);
  done_[gradient.part] = add_(chain.links.front(), after);
  chain.links.erase(chain.links.begin());
  if (!chain.links.empty()) chains_.push_back(std::move(chain));
}

void GradientChains::add_link(Chain& chain) {
  int& done = done_[chain.part];
  done = add_(chain.links.front(), {done});
  chain.links.erase(chain.links.begin());
}

void GradientChains::advance() {
  for (Chain& chain : chains_) add_link(chain);
  std::erase_if(chains_, [](const Chain& chain) { return chain.links.empty(); });
}

void GradientChains::finish(const Part& part) {
  for (Chain& chain : chains_)
    while (chain.part == part && !chain.links.empty()) add_link(chain);
  std::erase_if(chains_, [](const Chain& chain) { return chain.links.empty(); });
}

void GradientChains::finish() {
  while (!chains_.empty()) advance();
}

int GradientChains::done(const Part& part) const {
  const auto found = done_.find(part);
  return found == done_.end() ? -1 : found->second;
}

}  // namespace echelon
