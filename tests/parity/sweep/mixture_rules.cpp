// What mixtures of experts refuse.
#include "parity/sweep/rules.h"

namespace echelon::testing {
namespace {

const std::string family = "model.model_type", experts = "model.num_experts", groups = "model.n_group",
                  layers = "layers with experts", degree = "parallelism.expert_parallel_degree",
                  of_features = "parallelism.expert_tensor_parallel_degree", tp = "parallelism.tensor_parallel_degree",
                  sp = "parallelism.sequence_parallel", dispatch = "parallelism.expert_dispatch",
                  bound = "moe.dispatch_bound", recomputation = "training.recompute";

void refuse_models(Refusals& refused) {
  const std::string no_key = "config.json has no key for it";
  refused.add({{layers, {"every second"}}, {family, {"mixtral", "olmoe", "dots1", "deepseek_v2", "deepseek_v3"}}},
              "model.decoder_sparse_step", no_key);
  refused.add({{layers, {"all but the first"}}, {family, {"mixtral", "olmoe"}}}, "model.mlp_only_layers", no_key);
  refused.add({{groups, {"2"}}, {family, {"mixtral", "qwen2_moe", "qwen3_moe", "olmoe"}}}, groups, no_key);
  refused.add({{groups, {"2"}}, {experts, {"5"}}}, groups, "groups have equal sizes");
  refused.add(
      {{"routers", {"bias_update_rate"}}, {family, {"mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v2"}}},
      "moe.bias_update_rate", "the files have no place for a bias");
  refused.add({{"model.norm_topk_prob", {"true"}}, {family, {"deepseek_v2"}}}, "model.norm_topk_prob",
              "the family does not divide weights");
  refused.add({{recomputation, {"shared_expert"}}, {family, {"mixtral", "qwen3_moe", "olmoe"}}}, recomputation,
              "the model has no shared expert");
  refused.add({{"moe.capacity_factor", {"0.75", "0.5"}}, {bound, {"0.3", "1", "100", "expert_parallel_degree"}}}, bound,
              "a capacity bounds rows already");
}

void refuse_expert_parallel(Refusals& refused) {
  refused.add({{of_features, {"1"}}, {tp, {"2", "3", "4"}}, {sp, {"false"}}}, of_features,
              "each rank routes tokens of its own");
  refused.add({{degree, {"2", "3", "4", "8"}}, {tp, {"2", "3", "4"}}, {sp, {"false"}}}, degree,
              "each rank routes tokens of its own");
  refused.add({{of_features, {"2"}}, {tp, {"3", "4"}}, {sp, {"false"}}}, of_features,
              "each rank routes tokens of its own");
  refused.add({{degree, {}}, {experts, {}}}, degree, "each rank has as many experts",
              [](const Draft& d) { return d.num_experts % d.config.parallelism.expert_parallel_degree != 0; });
  refused.add({{degree, {}},
               {tp, {}},
               {"parallelism.context_parallel_degree", {}},
               {"parallelism.data_parallel_shard_degree", {}}},
              degree, "groups divide the ranks", [](const Draft& d) { return !has_expert_groups(d); });
  refused.add({{degree, {}},
               {of_features, {}},
               {tp, {}},
               {"parallelism.context_parallel_degree", {}},
               {"parallelism.data_parallel_shard_degree", {}}},
              of_features, "groups divide the ranks", [](const Draft& d) { return !has_feature_groups(d); });
  const std::vector<std::string> not_direct = {"hierarchical", "all_gather"};
  refused.add({{dispatch, not_direct}, {degree, {"1"}}}, dispatch, "a rank has all experts");
  refused.add({{dispatch, {"hierarchical"}}, {degree, {}}, {of_features, {}}, {tp, {}}}, dispatch,
              "rows go over ranks of features", [](const Draft& d) { return feature_ranks(d) > 1; });
  refused.add({{dispatch, {"hierarchical"}}, {degree, {"2", "3"}}}, "parallelism.ranks_per_node",
              "two hops need two nodes of two ranks");
}

/// Pairs of settings that are in no row, because of what other settings they need.
void name_impossible_models(Refusals& refused) {
  const std::string window = "model.sliding_window", only_mixtral = "of mixtral alone";
  refused.add_consequence({{window, {"4"}}, {recomputation, {"qk_norm", "shared_expert"}}}, only_mixtral);
  refused.add_consequence({{window, {"4"}}, {groups, {"2"}}}, only_mixtral);
  refused.add_consequence({{window, {"4"}}, {layers, {"every second", "all but the first"}}}, only_mixtral);
  refused.add_consequence({{window, {"4"}}, {"routers", {"bias_update_rate"}}}, only_mixtral);
  const std::string of_qwen = "of qwen2_moe and qwen3_moe alone";
  refused.add_consequence({{layers, {"every second"}}, {groups, {"2"}}}, of_qwen);
  refused.add_consequence({{layers, {"every second"}}, {"routers", {"bias_update_rate"}}}, of_qwen);
}

void name_impossible_ranks(Refusals& refused) {
  using P = ParallelConfig;
  const std::string why = "no groups on so many ranks";
  const std::pair<std::string, std::int64_t P::*> degrees[] = {
      {tp, &P::tensor_parallel_degree},
      {"parallelism.context_parallel_degree", &P::context_parallel_degree},
      {"parallelism.data_parallel_shard_degree", &P::data_parallel_shard_degree},
      {"parallelism.data_parallel_replicate_degree", &P::data_parallel_replicate_degree},
      {"parallelism.pipeline_parallel_degree", &P::pipeline_parallel_degree}};
  for (const auto& [axis, field] : degrees)
    for (const std::string& of : {degree, of_features})
      refused.add_consequences(axis, of, why,
                               [field = field](const Draft& d) { return !have_expert_groups(d, {field}); });
  refused.add_consequences(degree, of_features, why, [](const Draft& d) { return !have_expert_groups(d, {}); });
  const std::string four = "two hops need groups of 4 or 8";
  refused.add_consequence({{dispatch, {"hierarchical"}}, {experts, {"5", "6"}}}, four);
  refused.add_consequence({{dispatch, {"hierarchical"}}, {of_features, {"2"}}}, "rows go over ranks of features");
  refused.add_consequence({{dispatch, {"all_gather"}}, {experts, {"5"}}}, "ranks divide them by 2, 3, 4 or 8");
}

}  // namespace

void refuse_experts(Refusals& refused) {
  refuse_models(refused);
  refuse_expert_parallel(refused);
  if (!refused.has(groups)) return;  // of all models
  name_impossible_models(refused);
  name_impossible_ranks(refused);
}

}  // namespace echelon::testing
