// The keys of context parallelism: which of them belong together.
#include "base/divisors.h"
#include "base/error.h"
#include "spec/config/run_config.h"

namespace echelon {
namespace {

std::int64_t smallest_factor(std::int64_t cp) {
  std::int64_t factor = 2;
  while (factor < cp && cp % factor != 0) ++factor;
  return factor;
}

void check_sizes(const ParallelConfig& p) {
  const std::vector<std::int64_t>& sizes = p.hierarchical_context_parallel_sizes;
  const std::int64_t cp = p.context_parallel_degree, u = sizes.empty() ? 1 : closest_divisor(cp, sizes[0]);
  require(sizes.size() == 2 && sizes[0] >= 1 && sizes[1] >= 1 && cp % sizes[0] == 0 && sizes[1] == cp / sizes[0],
          "parallelism.hierarchical_context_parallel_sizes = [{}] are not two degrees that multiply to "
          "context_parallel_degree = {} (use [{}, {}])",
          fmt::join(sizes, ", "), cp, u, cp / u);
  require(p.context_parallel_ulysses_degree == 0 || p.context_parallel_ulysses_degree == sizes[0],
          "parallelism.context_parallel_ulysses_degree = {} contradicts hierarchical_context_parallel_sizes = [{}] "
          "(use {})",
          p.context_parallel_ulysses_degree, fmt::join(sizes, ", "), sizes[0]);
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

void check_key_exchange(const ParallelConfig& p, const ExchangeKeys& keys) {
  const std::int64_t cp = p.context_parallel_degree, u = p.context_parallel_ulysses_degree;
  const std::string_view method = name_of(p.context_parallel_method);
  require(cp > 1 || p.context_parallel_method == ContextMethod::ring,
          "{}{} = '{}' does not apply to whole sequences: {} = 1 (use ring)", keys.prefix, keys.method, method,
          keys.cp);
  if (p.context_parallel_method != ContextMethod::ulysses_ring)
    return require(u == 0, "{}{} = {} does not apply to {} = '{}' (use 0)", keys.prefix, keys.ulysses_degree, u,
                   keys.method, method);
  require(u > 0, "{}{} = 0 does not say how many ranks exchange heads in {} = 'ulysses_ring' (use {})", keys.prefix,
          keys.ulysses_degree, keys.method, smallest_factor(cp));
  require(u <= cp && cp % u == 0, "{}{} = {} does not divide {} = {} (use {})", keys.prefix, keys.ulysses_degree, u,
          keys.cp, cp, closest_divisor(cp, u));
}

void check_context_parallel(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  const std::int64_t cp = p.context_parallel_degree;
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
  const bool has_groups = cp > 1 && p.context_parallel_method == ContextMethod::ulysses_ring;
  if (has_groups && !p.hierarchical_context_parallel_sizes.empty()) return check_sizes(p);
  check_key_exchange(p, {});
  require(p.hierarchical_context_parallel_sizes.empty(),
          "parallelism.hierarchical_context_parallel_sizes = [{}] does not apply to context_parallel_method = '{}' "
          "(use [])",
          fmt::join(p.hierarchical_context_parallel_sizes, ", "), name_of(p.context_parallel_method));
}

}  // namespace echelon
