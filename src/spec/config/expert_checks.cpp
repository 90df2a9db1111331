// Checks of the keys for mixtures of experts.
#include "base/error.h"
#include "spec/config/run_config.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <optional>

namespace echelon {

std::int64_t expert_capacity(const MoeConfig& moe, const MixtureSpec& mixture, std::int64_t seq_len) {
  if (!mixture.exists()) return 0;
  constexpr double rounding = 1 - 1e-12;  // of a factor such as 1.1
  const double rows = std::ceil(moe.capacity_factor * static_cast<double>(mixture.num_experts_per_tok * seq_len) /
                                static_cast<double>(mixture.num_experts) * rounding);
  return rows < static_cast<double>(seq_len) ? static_cast<std::int64_t>(rows) : 0;
}

double capacity_factor_of(const RunConfig& config) {
  const bool drops = expert_capacity(config.moe, config.model.mixture, config.training.seq_len) > 0;
  return drops ? config.moe.capacity_factor : 0;
}

std::vector<double> kept_shares_of_ranks(const RunConfig& config) {
  const MixtureSpec& mixture = config.model.mixture;
  const std::int64_t capacity = expert_capacity(config.moe, mixture, config.training.seq_len);
  if (capacity == 0) return {};
  const auto rows = static_cast<double>(mixture.num_experts_per_tok * config.training.seq_len);
  std::vector<double> shares =
      shares_of_ranks(config.expert_load, mixture, static_cast<int>(config.parallelism.expert_parallel_degree),
                      static_cast<double>(capacity) / rows);
  constexpr double rounding = 1e-9;
  const bool keeps_all = std::accumulate(shares.begin(), shares.end(), 0.0) >= 1 - rounding;
  return keeps_all ? std::vector<double>() : shares;
}

namespace {

void check_capacity(const MoeConfig& moe, bool has_experts) {
  const MoeConfig usual;
  const bool has_capacity = moe.capacity_factor != usual.capacity_factor;
  require(has_experts || !has_capacity,
          "moe.capacity_factor = {} is for mixtures of experts, and the model has no experts (use {})",
          moe.capacity_factor, usual.capacity_factor);
  require(has_capacity || moe.capacity_order == usual.capacity_order,
          "moe.capacity_order = '{}' orders rows for a moe.capacity_factor, and there is none (use {})",
          name_of(moe.capacity_order), name_of(usual.capacity_order));
  require(!has_capacity || moe.dispatch_bound == usual.dispatch_bound,
          "moe.dispatch_bound = {} bounds the rows of a round, which moe.capacity_factor = {} bounds already (use {})",
          moe.dispatch_bound, moe.capacity_factor, usual.dispatch_bound);
}

void check_router(const RunConfig& config) {
  const MoeConfig& moe = config.moe;
  const bool has_experts = config.model.has_experts();
  require(has_experts || moe.dispatch_bound == MoeConfig().dispatch_bound,
          "moe.dispatch_bound = {} is for mixtures of experts, and the model has no experts (use {})",
          moe.dispatch_bound, MoeConfig().dispatch_bound);
  check_capacity(moe, has_experts);
  for (const auto& [key, value] : {std::pair{"seq_aux_loss_coeff", moe.seq_aux_loss_coeff},
                                   {"global_aux_loss_coeff", moe.global_aux_loss_coeff},
                                   {"z_loss_coeff", moe.z_loss_coeff},
                                   {"bias_update_rate", moe.bias_update_rate}}) {
    require(has_experts || value == 0, "moe.{} = {} is for mixtures of experts, and the model has no experts (use 0)",
            key, value);
    require(!moe.freeze_router || value == 0, "moe.{} = {} moves routers, which moe.freeze_router = true keeps (use 0)",
            key, value);
    require(!config.lora.exists() || value == 0, "moe.{} = {} moves routers, which lora.rank = {} keeps (use 0)", key,
            value, config.lora.rank);
  }
  require(has_experts || !config.metrics.expert_loads,
          "metrics.expert_loads = true is for mixtures of experts, and the model has no experts (use false)");
  require(has_experts || !moe.freeze_router,
          "moe.freeze_router = true is for mixtures of experts, and the model has no experts (use false)");
  require(has_experts || !moe.force_balance,
          "moe.force_balance = true is for mixtures of experts, and the model has no experts (use false)");
  require(
      !moe.force_balance || !config.training.cuda_graphs,
      "training.cuda_graphs = true is not supported with moe.force_balance = true, which the host writes (use false)");
  require(moe.bias_update_rate == 0 || config.model.mixture.has_bias,
          "moe.bias_update_rate = {} moves the bias of a choice, for which the files of model_type {} have no place; "
          "moe.seq_aux_loss_coeff evens out loads, too (use 0)",
          moe.bias_update_rate, name_of(config.model.family));
}

std::int64_t num_ranks_of_stage(const ParallelConfig& p) {
  return p.data_parallel_shard_degree * p.context_parallel_degree * p.tensor_parallel_degree;
}

/// The degree of at most all ranks that `fits` and is closest to the wanted one; of two the smaller. 1 always fits.
template <class Fits>
std::int64_t closest_degree(std::int64_t wanted, const ParallelConfig& p, const Fits& fits) {
  const std::int64_t most = num_ranks_of_stage(p);
  for (std::int64_t distance = 0; distance < wanted; ++distance)
    for (const std::int64_t degree : {wanted - distance, wanted + distance})
      if (degree <= most && fits(degree)) return degree;
  return 1;
}

/// Whether the ranks of a stage and replica divide into groups of so many neighbours, on whichever axes these are.
bool are_groups(std::int64_t ranks, const ParallelConfig& p) { return num_ranks_of_stage(p) % ranks == 0; }

/// Where ranks with features of the same experts exchange rows.
void check_features(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  const std::int64_t ep = p.expert_parallel_degree, etp = expert_tensor_degree(p),
                     features = config.model.mixture.moe_intermediate_size;
  if (num_feature_ranks(p) == 1) return;
  const std::int64_t closest =
      closest_degree(etp, p, [&](std::int64_t degree) { return degree <= features && are_groups(ep * degree, p); });
  require(etp <= features,
          "parallelism.expert_tensor_parallel_degree = {} is more than the features of an expert, "
          "model.moe_intermediate_size = {} (use {})",
          etp, features, closest);
  require(closest == etp,
          "parallelism.expert_tensor_parallel_degree = {} with expert_parallel_degree = {} does not divide the "
          "data_parallel_shard_degree = {} x context_parallel_degree = {} x tensor_parallel_degree = {} ranks (use {})",
          etp, ep, p.data_parallel_shard_degree, p.context_parallel_degree, p.tensor_parallel_degree, closest);
  require(p.expert_dispatch != ExpertDispatch::hierarchical,
          "parallelism.expert_dispatch = 'hierarchical' is not supported with expert_tensor_parallel_degree = {} (use "
          "'direct')",
          etp);
}

/// Two hops need several nodes with several ranks of an expert group each.
void check_dispatch(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  require(p.expert_dispatch != ExpertDispatch::all_gather || num_expert_ranks(p) > 1,
          "parallelism.expert_dispatch = 'all_gather' sends tokens to other ranks, and "
          "parallelism.expert_parallel_degree = 1 sends none (use 'auto')");
  if (p.expert_dispatch != ExpertDispatch::hierarchical) return;
  require(
      p.expert_parallel_degree > 1,
      "parallelism.expert_dispatch = 'hierarchical' sends rows to other nodes, and parallelism.expert_parallel_degree "
      "= 1 sends none (use 'auto')");
  if (p.ranks_per_node == 0) return;  // a launcher or a machine may say it
  const std::optional<int> on_node = ep_neighbours_on_node(config);
  if (on_node && *on_node > 1 && *on_node < p.expert_parallel_degree) return;
  std::int64_t closest = 0;
  RunConfig other = config;
  for (std::int64_t ranks = 2; ranks < config.mesh_shape().num_ranks(); ++ranks) {
    other.parallelism.ranks_per_node = ranks;
    if (ep_on_node(other) == 0) continue;
    if (closest == 0 || std::abs(ranks - p.ranks_per_node) < std::abs(closest - p.ranks_per_node)) closest = ranks;
  }
  throw Error(fmt::format(
      "parallelism.ranks_per_node = {} {} of the {} ranks with the experts of a layer, which "
      "parallelism.expert_dispatch = 'hierarchical' has to divide into several each (use {})",
      p.ranks_per_node,
      !on_node        ? "does not give every node equally many neighbours"
      : *on_node == 1 ? "gives every node one"
                      : "gives one node all",
      p.expert_parallel_degree, closest > 0 ? fmt::format("{}", closest) : std::string("expert_dispatch = 'direct'")));
}

}  // namespace

void check_expert_parallel(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  const std::int64_t ep = p.expert_parallel_degree, etp = expert_tensor_degree(p), tp = p.tensor_parallel_degree,
                     E = config.model.mixture.num_experts;
  if (!config.model.has_experts()) {
    require(ep == 1 && p.expert_tensor_parallel_degree <= 1,
            "parallelism.{} = {} divides experts, and the model has none (use {})",
            ep > 1 ? "expert_parallel_degree" : "expert_tensor_parallel_degree",
            ep > 1 ? ep : p.expert_tensor_parallel_degree, ep > 1 ? 1 : 0);
    require(p.expert_dispatch == ExpertDispatch::automatic,
            "parallelism.expert_dispatch = '{}' is for mixtures of experts, and the model has no experts (use 'auto')",
            name_of(p.expert_dispatch));
    return;
  }
  require(tp == 1 || p.sequence_parallel || etp == tp,
          "parallelism.expert_tensor_parallel_degree = {} has each tensor-parallel rank route tokens of its own, but "
          "parallelism.sequence_parallel = false (use {})",
          etp, tp);
  require(
      ep == 1 || tp == 1 || p.sequence_parallel,
      "parallelism.expert_parallel_degree = {} next to tensor_parallel_degree = {} would route each token {} times: it "
      "needs parallelism.sequence_parallel = true (use expert_parallel_degree = 1)",
      ep, tp, tp);
  require(E % ep == 0, "parallelism.expert_parallel_degree = {} does not divide model.num_experts = {} (use {})", ep, E,
          closest_degree(ep, p, [&](std::int64_t degree) { return E % degree == 0 && are_groups(degree, p); }));
  require(are_groups(ep, p),
          "parallelism.expert_parallel_degree = {} does not divide the data_parallel_shard_degree = {} x "
          "context_parallel_degree = {} x tensor_parallel_degree = {} ranks (use {})",
          ep, p.data_parallel_shard_degree, p.context_parallel_degree, tp,
          closest_degree(ep, p, [&](std::int64_t degree) { return E % degree == 0 && are_groups(degree, p); }));
  check_features(config);
  require(num_expert_ranks(p) == 1 || !config.training.cuda_graphs,
          "training.cuda_graphs = true replays the same rows in every step, and parallelism.{} = {} exchanges others "
          "in each (use cuda_graphs = false)",
          ep > 1 ? "expert_parallel_degree" : "expert_tensor_parallel_degree", ep > 1 ? ep : etp);
  check_dispatch(config);
}

void check_experts(const RunConfig& config) {
  check_router(config);
  if (!config.model.has_experts()) return;
  require(config.training.linear_dtype != LinearDType::float8,
          "training.linear_dtype = 'float8' is not supported with model.num_experts = {} (omit linear_dtype)",
          config.model.mixture.num_experts);
  require(config.training.mlp_chunk_tokens == 0,
          "training.mlp_chunk_tokens = {} is not supported with model.num_experts = {} (use 0)",
          config.training.mlp_chunk_tokens, config.model.mixture.num_experts);
}

}  // namespace echelon
