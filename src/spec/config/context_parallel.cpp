// The keys of context parallelism: which of them belong together.
#include "base/error.h"
#include "spec/config/run_config.h"

#include <cstdlib>

namespace echelon {
namespace {

/// The divisor of `cp` that is closest to `degree`; of two the smaller.
std::int64_t divisor_close_to(std::int64_t cp, std::int64_t degree) {
  std::int64_t closest = 1;
  for (std::int64_t divisor = 1; divisor <= cp; ++divisor)
    if (cp % divisor == 0 && std::abs(divisor - degree) < std::abs(closest - degree)) closest = divisor;
  return closest;
}

std::int64_t smallest_factor(std::int64_t cp) {
  std::int64_t factor = 2;
  while (factor < cp && cp % factor != 0) ++factor;
  return factor;
}

void check_sizes(const ParallelConfig& p) {
  const std::vector<std::int64_t>& sizes = p.hierarchical_context_parallel_sizes;
  const std::int64_t cp = p.context_parallel_degree, u = sizes.empty() ? 1 : divisor_close_to(cp, sizes[0]);
  require(sizes.size() == 2 && sizes[0] >= 1 && sizes[1] >= 1 && cp % sizes[0] == 0 && sizes[1] == cp / sizes[0],
          "parallelism.hierarchical_context_parallel_sizes = [{}] are not two degrees that multiply to "
          "context_parallel_degree = {} (use [{}, {}])",
          fmt::join(sizes, ", "), cp, u, cp / u);
  require(p.context_parallel_ulysses_degree == 0 || p.context_parallel_ulysses_degree == sizes[0],
          "parallelism.context_parallel_ulysses_degree = {} contradicts hierarchical_context_parallel_sizes = [{}] "
          "(use {})",
          p.context_parallel_ulysses_degree, fmt::join(sizes, ", "), sizes[0]);
}

/// Where the method has a ring of groups.
void check_ulysses_degree(const ParallelConfig& p) {
  const std::int64_t cp = p.context_parallel_degree, u = p.context_parallel_ulysses_degree;
  if (!p.hierarchical_context_parallel_sizes.empty()) return check_sizes(p);
  require(u > 0,
          "parallelism.context_parallel_ulysses_degree = 0 does not say how many ranks exchange heads in "
          "context_parallel_method = 'ulysses_ring' (use {})",
          smallest_factor(cp));
  require(u <= cp && cp % u == 0,
          "parallelism.context_parallel_ulysses_degree = {} does not divide context_parallel_degree = {} (use {})", u,
          cp, divisor_close_to(cp, u));
}

}  // namespace

KeyExchange key_exchange(const ParallelConfig& p) {
  const std::vector<std::int64_t>& sizes = p.hierarchical_context_parallel_sizes;
  const std::int64_t u = sizes.empty() ? p.context_parallel_ulysses_degree : sizes[0];
  switch (p.context_parallel_method) {
    case ContextMethod::ring:
    case ContextMethod::all_gather: return {.method = p.context_parallel_method};
    case ContextMethod::ulysses:
      return {.method = p.context_parallel_method, .head_ranks = static_cast<int>(p.context_parallel_degree)};
    case ContextMethod::ulysses_ring: return {.method = p.context_parallel_method, .head_ranks = static_cast<int>(u)};
  }
  return {};
}

void check_context_parallel(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  const std::int64_t cp = p.context_parallel_degree;
  const std::string_view method = name_of(p.context_parallel_method);
  require(cp <= config.training.seq_len,
          "parallelism.context_parallel_degree = {} is more than training.seq_len = {}: every rank holds a token "
          "(use {})",
          cp, config.training.seq_len, config.training.seq_len);
  require(cp > 1 || p.context_parallel_load_balancer == LoadBalancer::headtail,
          "parallelism.context_parallel_load_balancer = '{}' does not apply to whole sequences: "
          "context_parallel_degree = 1 (use headtail)",
          name_of(p.context_parallel_load_balancer));
  require(!reads_documents(p.context_parallel_load_balancer) || config.data.reset_attention_mask,
          "parallelism.context_parallel_load_balancer = '{}' distributes documents, but data.reset_attention_mask = "
          "false (use data.reset_attention_mask = true)",
          name_of(p.context_parallel_load_balancer));
  require(cp > 1 || p.context_parallel_method == ContextMethod::ring,
          "parallelism.context_parallel_method = '{}' does not apply to whole sequences: context_parallel_degree = 1 "
          "(use ring)",
          method);
  if (p.context_parallel_method == ContextMethod::ulysses_ring) return check_ulysses_degree(p);
  require(p.context_parallel_ulysses_degree == 0,
          "parallelism.context_parallel_ulysses_degree = {} does not apply to context_parallel_method = '{}' (use 0)",
          p.context_parallel_ulysses_degree, method);
  require(p.hierarchical_context_parallel_sizes.empty(),
          "parallelism.hierarchical_context_parallel_sizes = [{}] does not apply to context_parallel_method = '{}' "
          "(use [])",
          fmt::join(p.hierarchical_context_parallel_sizes, ", "), method);
}

}  // namespace echelon
