#include "plan/balance/balancers.h"

#include "predict/documents/document_load.h"

#include <algorithm>

namespace echelon {
namespace {

constexpr std::string_view balancer_key = "parallelism.context_parallel_load_balancer";

/// Of ranks that exchange heads each has all tokens.
bool has_balancers(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  return p.context_parallel_degree > 1 && key_exchange(p).head_ranks < p.context_parallel_degree;
}

/// `documents`: where the request has none.
SimulationOptions options_for(const RunConfig& config, const PlanRequest& request, const DocumentsOf& documents) {
  SimulationOptions options;
  if (request.documents != nullptr) {
    options.profile = request.documents->profile_of(config);
    return options;
  }
  const DocumentLoad load =
      documents ? document_load(config, documents, batches_to_count(config)) : load_of_whole_sequences(config);
  options.attention_shares = load.rank_shares;
  options.profile.attention_share = load.slowest_share;
  options.profile.key_shares = load.keys;
  return options;
}

BalancedStep timed(RunConfig config, LoadBalancer balancer, const PlanRequest& request, const DocumentsOf& documents) {
  config.parallelism.context_parallel_load_balancer = balancer;
  const Simulation step = simulate(Blueprint(config), request.machine, options_for(config, request, documents));
  return {balancer, step.step_seconds, step.fits()};
}

}  // namespace

std::vector<BalancedStep> balanced_steps(const Plan& plan, const PlanRequest& request, const DocumentsOf& documents) {
  const bool has_documents = documents || request.documents != nullptr;
  if (!has_balancers(plan.config) || (!has_documents && !has_windows_alone(plan.config))) return {};
  std::vector<BalancedStep> steps;
  for (const LoadBalancer balancer : load_balancers) {
    const bool is_fixed = request.fixes(balancer_key);
    if (is_fixed && balancer != plan.config.parallelism.context_parallel_load_balancer) continue;
    if (reads_documents(balancer) && !has_documents) continue;
    steps.push_back(timed(plan.config, balancer, request, documents));
  }
  return steps;
}

void choose_balancer(PlanResult& result, const PlanRequest& request, const DocumentsOf& documents) {
  if (result.plans.empty()) return;
  Plan& best = result.plans.front();
  result.balanced = balanced_steps(best, request, documents);
  const BalancedStep* quickest = nullptr;
  for (const BalancedStep& step : result.balanced)
    if (step.fits && (quickest == nullptr || comparable(step.seconds) < comparable(quickest->seconds)))
      quickest = &step;
  if (quickest == nullptr) return;
  if (request.documents == nullptr) {
    best.config.parallelism.context_parallel_load_balancer = quickest->balancer;
  } else if (comparable(quickest->seconds) < comparable(best.outcome.step_seconds)) {  // a search that was ended
    PlanChoice choice = best.choice;
    choice.shape.balancer = quickest->balancer;
    Plan other = evaluate(request, choice);
    if (is_better(request.objective, other, best)) best = std::move(other);
  }
}

}  // namespace echelon
