// The shapes of a space: degrees, methods of context parallelism, ways to divide experts, and microbatches that `train`
// would run.
#include "base/error.h"
#include "plan/space/choices.h"
#include "plan/space/no_layout.h"

#include <algorithm>

namespace echelon {
namespace {

constexpr std::string_view tensor_key = "parallelism.tensor_parallel_degree",
                           sequence_key = "parallelism.sequence_parallel",
                           context_key = "parallelism.context_parallel_degree",
                           exchange_key = "parallelism.context_parallel_method",
                           head_ranks_key = "parallelism.context_parallel_ulysses_degree",
                           sizes_key = "parallelism.hierarchical_context_parallel_sizes",
                           load_balancer_key = "parallelism.context_parallel_load_balancer",
                           pipeline_key = "parallelism.pipeline_parallel_degree",
                           expert_key = "parallelism.expert_parallel_degree",
                           expert_tensor_key = "parallelism.expert_tensor_parallel_degree",
                           bound_key = "moe.dispatch_bound", micro_batch_key = "training.micro_batch_size";

/// The usual bound and half of it, which takes less memory, and rounds that overlap; while the most loaded rank takes
/// several rounds, twice as much.
std::vector<double> dispatch_bounds(const PlanShape& shape, const PlanRequest& request) {
  const RunConfig& base = request.base;
  const double usual = base.moe.dispatch_bound;
  const bool has_capacity = base.moe.capacity_factor != MoeConfig().capacity_factor;
  if (num_expert_ranks(shape) == 1 || has_capacity || request.fixes(bound_key)) return {usual};
  std::vector<double> all = {usual / 2, usual};
  if (base.expert_load.is_balanced()) return all;
  const auto ep = static_cast<int>(shape.ep);
  const double most = ep * shares_of_ranks(base.expert_load, base.model.mixture, ep).front();
  while (all.back() < most) all.push_back(2 * all.back());
  return all;
}

bool is_legal(const RunConfig& config) {
  try {
    require_legal(config);
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool fixes_head_ranks(const PlanRequest& request) { return request.fixes(head_ranks_key) || request.fixes(sizes_key); }

/// Whether what is fixed is a choice of several ranks of context parallelism.
bool needs_context(const PlanRequest& request) {
  const ParallelConfig& p = request.base.parallelism;
  return fixes_head_ranks(request) || p.context_parallel_method != ContextMethod::ring ||
         p.context_parallel_load_balancer != LoadBalancer::headtail;
}

}  // namespace

PlanSpace::PlanSpace(const PlanRequest& request) : PlanSpace(&request, false) {
  if (shapes_.empty()) refuse_without_layouts(request);
}

bool PlanSpace::has_layouts(const PlanRequest& request) { return !PlanSpace(&request, true).shapes_.empty(); }

PlanSpace::PlanSpace(const PlanRequest* request, bool one_is_enough) : request_(request) {
  add_orders();
  RunConfig config = without_choices(request->base);
  const ParallelConfig& fixed = request->base.parallelism;
  for (const std::int64_t tp : divisors(request->num_devices)) {
    if (!fits(tensor_key, tp, fixed.tensor_parallel_degree)) continue;
    for (const std::int64_t pp : divisors(request->num_devices / tp)) {
      if (!fits(pipeline_key, pp, fixed.pipeline_parallel_degree)) continue;
      for (const std::int64_t cp : divisors(request->num_devices / (tp * pp))) {
        if (is_searched(cp)) add_shapes(tp, pp, cp, config);
        if (one_is_enough && !shapes_.empty()) return;
      }
    }
  }
}

bool PlanSpace::is_searched(std::int64_t cp) const {
  if (request_->fixes(context_key)) return cp == request_->base.parallelism.context_parallel_degree;
  return cp == 1 || needs_context(*request_) || request_->base.training.seq_len >= cp * least_context_tokens;
}

/// Of which the fixed keys say no other. Legal ones among others.
std::vector<KeyExchange> PlanSpace::exchanges(std::int64_t tp, std::int64_t cp) const {
  const ParallelConfig& fixed = request_->base.parallelism;
  const bool fixes_degree = fixes_head_ranks(*request_);
  std::vector<KeyExchange> all;
  const auto add = [&](ContextMethod method, std::int64_t head_ranks) {
    if (request_->fixes(exchange_key) && method != fixed.context_parallel_method) return;
    all.push_back({method, static_cast<int>(head_ranks)});
  };
  if (!fixes_degree) add(ContextMethod::ring, 1);
  if (cp == 1) return all;
  if (!fixes_degree) add(ContextMethod::all_gather, 1);
  if (!fixes_degree) add(ContextMethod::ulysses, cp);
  for (const std::int64_t u : divisors(cp)) {
    const bool is_wanted = !fixes_degree || u == fixed.context_parallel_ulysses_degree ||
                           fixed.hierarchical_context_parallel_sizes == std::vector{u, cp / u};
    const bool has_ring = u > 1 && u < cp;  // else it is a ring or ulysses by another name
    if (is_wanted && (has_ring || fixes_degree) && u <= request_->base.model.num_attention_heads / tp)
      add(ContextMethod::ulysses_ring, u);
  }
  return all;
}

/// Of whole sequences headtail gives all ranks as many pairs (query, key), and no balancer sends fewer rows. Of ranks
/// that exchange heads each has all tokens.
std::vector<LoadBalancer> PlanSpace::balancers(std::int64_t cp, const KeyExchange& exchange) const {
  if (request_->documents == nullptr || request_->fixes(load_balancer_key) || exchange.head_ranks == cp)
    return {request_->base.parallelism.context_parallel_load_balancer};
  return {load_balancers.begin(), load_balancers.end()};
}

std::vector<PlanShape> PlanSpace::with_experts(const PlanShape& shape) const {
  const ModelSpec& model = request_->base.model;
  const ParallelConfig& fixed = request_->base.parallelism;
  std::vector<PlanShape> all;
  const bool fixes_features = request_->fixes(expert_tensor_key);
  const auto add = [&](std::int64_t ep, std::int64_t etp, bool are_as_dense) {
    if (!fits(expert_key, ep, fixed.expert_parallel_degree)) return;
    if (fixes_features && fixed.expert_tensor_parallel_degree != (are_as_dense && model.has_experts() ? shape.tp : etp))
      return;
    all.push_back(shape);
    all.back().ep = ep;
    all.back().etp = etp;
    all.back().divides_experts_as_dense = are_as_dense;
  };
  if (shape.tp > 1 || !model.has_experts()) add(1, 1, true);
  if (!model.has_experts() || (shape.tp > 1 && !shape.sequence_parallel)) return all;
  // A rank with features of an expert gets the rows of all of them: no more of them than tensor-parallel ranks, whose
  // links are the fastest.
  std::vector<std::int64_t> of_features = divisors(shape.tp);
  if (fixes_features) of_features = {fixed.expert_tensor_parallel_degree};
  for (const std::int64_t ep : divisors(model.mixture.num_experts))
    for (const std::int64_t etp : of_features)
      if ((ep > 1 || etp == 1 || etp != shape.tp) &&
          shape.dp % shards_of_experts({.tp = shape.tp, .cp = shape.cp, .ep = ep, .etp = etp}) == 0)
        add(ep, etp, false);
  return all;
}

std::vector<PlanShape> PlanSpace::with_row_exchanges(const PlanShape& shape) const {
  const ExpertDispatch fixed = request_->base.parallelism.expert_dispatch;
  const std::int64_t of_node = ranks_of_node(*request_);
  const bool is_open = fixed == ExpertDispatch::automatic, may_gather = num_expert_ranks(shape) > 1,
             has_nodes = of_node > 1 && shape.etp == 1 && shape.ep > of_node && shape.ep % of_node == 0,
             // Tokens to all are then no more than rows. With features over ranks only a fixed expert_dispatch gathers
             // them: so many more shapes would keep a search from ending with a proof.
      may_be_best = shape.etp == 1 && shape.ep <= request_->base.model.mixture.num_experts_per_tok;
  std::vector<std::int64_t> ways;
  if (is_open || fixed == ExpertDispatch::direct) ways.push_back(0);
  if (has_nodes && (is_open || fixed == ExpertDispatch::hierarchical)) ways.push_back(of_node);
  if (may_gather && (is_open ? may_be_best : fixed == ExpertDispatch::all_gather)) ways.push_back(1);
  std::vector<PlanShape> all;
  for (const double bound : dispatch_bounds(shape, *request_))
    for (const std::int64_t ranks_per_node : ways) {
      all.push_back(shape);
      all.back().ranks_per_node = ranks_per_node;
      all.back().dispatch_bound = bound;
    }
  return all;
}

void PlanSpace::add_divided(const PlanShape& shape, RunConfig& config) {
  if (pipelines(shape).empty()) return;
  for (const PlanShape& divided : with_experts(shape)) {
    set_shape(config, divided);  // all of it, as long as rows go directly
    if (!is_legal(config)) continue;
    for (const PlanShape& each : with_row_exchanges(divided))
      if (!data_layouts(each).empty()) shapes_.push_back(each);
  }
}

void PlanSpace::add_shapes(std::int64_t tp, std::int64_t pp, std::int64_t cp, RunConfig& config) {
  const ParallelConfig& fixed = request_->base.parallelism;
  const std::int64_t dp = request_->num_devices / (tp * pp * cp), batch = request_->base.training.global_batch_size;
  if (batch % dp != 0) return;
  for (const std::int64_t micro_batch : divisors(batch / dp)) {
    if (!fits(micro_batch_key, micro_batch, request_->base.training.micro_batch_size)) continue;
    for (const bool sequence_parallel : {false, true}) {
      if (request_->fixes(sequence_key) ? sequence_parallel != fixed.sequence_parallel : sequence_parallel && tp == 1)
        continue;
      for (const KeyExchange& exchange : exchanges(tp, cp))
        for (const LoadBalancer balancer : balancers(cp, exchange))
          add_divided({.tp = tp,
                       .sequence_parallel = sequence_parallel,
                       .pp = pp,
                       .dp = dp,
                       .micro_batch_size = micro_batch,
                       .num_microbatches = batch / dp / micro_batch,
                       .cp = cp,
                       .exchange = exchange,
                       .balancer = balancer},
                      config);
    }
  }
}

}  // namespace echelon
