#include "schedule/lowering/gradient_chains.h"

#include <algorithm>
#include <utility>

namespace echelon {

std::vector<Action> GradientChains::links_of(const Gradient& gradient) const {
  const auto& [key, place, writers, is_last] = gradient;
  const auto& sums = options_.stages[key.stage].unit_sums_replicas;
  const bool sums_replicas = key.unit < static_cast<int>(sums.size()) && sums[key.unit];
  std::vector<Action> links;
  const auto link = [&](ActionKind kind) {
    links.push_back({.kind = kind, .stage = place.stage, .microbatch = place.microbatch, .unit = place.unit});
  };
  const auto link_of_step = [&](ActionKind kind) {
    links.push_back({.kind = kind, .stage = key.stage, .unit = key.unit});
  };
  if (options_.reduces_gradients) link(ActionKind::reduce_gradients);
  if (options_.stores_gradients()) link(ActionKind::store_gradients);
  if (is_last && options_.reduces_parts) link_of_step(ActionKind::reduce_parts);
  if (is_last && sums_replicas) link_of_step(ActionKind::sum_replicas);
  return links;
}

void GradientChains::begin(const Gradient& gradient, int count_tokens) {
  Chain chain{gradient.key, links_of(gradient)};
  done_[gradient.key] = *std::max_element(gradient.writers.begin(), gradient.writers.end());
  if (chain.links.empty()) return;
  std::vector<int> after = gradient.writers;
  if (chain.links.front().kind == ActionKind::reduce_gradients) after.push_back(count_tokens);
  done_[gradient.key] = add_(chain.links.front(), after);
  chain.links.erase(chain.links.begin());
  if (!chain.links.empty()) chains_.push_back(std::move(chain));
}

void GradientChains::add_link(Chain& chain) {
  int& done = done_[chain.key];
  done = add_(chain.links.front(), {done});
  chain.links.erase(chain.links.begin());
}

void GradientChains::advance() {
  for (Chain& chain : chains_) add_link(chain);
  std::erase_if(chains_, [](const Chain& chain) { return chain.links.empty(); });
}

void GradientChains::finish(const UnitKey& key) {
  for (Chain& chain : chains_)
    while (chain.key == key && !chain.links.empty()) add_link(chain);
  std::erase_if(chains_, [](const Chain& chain) { return chain.links.empty(); });
}

void GradientChains::finish() {
  while (!chains_.empty()) advance();
}

int GradientChains::done(const UnitKey& key) const {
  const auto found = done_.find(key);
  return found == done_.end() ? -1 : found->second;
}

}  // namespace echelon
