#include "parity/sweep/mixture_axes.h"

#include <fmt/format.h>

#include <algorithm>

namespace echelon::testing {
namespace {

std::vector<AxisSetting> families_with_experts() {
  std::vector<AxisSetting> settings;
  for (const Family family : {Family::mixtral, Family::qwen2_moe, Family::qwen3_moe, Family::olmoe, Family::dots1,
                              Family::deepseek_v2, Family::deepseek_v3})
    settings.push_back({std::string(name_of(family)),
                        [=](Draft& d) { d.config.model = family_defaults(family), d.has_experts = true; }});
  return settings;
}

template <class Set>
std::vector<AxisSetting> counts(const std::vector<int>& values, const Set& set) {
  std::vector<AxisSetting> settings;
  for (const int value : values) settings.push_back({fmt::format("{}", value), [=](Draft& d) { set(d, value); }});
  return settings;
}

SweepAxis experts_per_token() {
  SweepAxis axis = {"model.num_experts_per_tok", counts({2, 1, 3}, [](Draft& d, int k) { d.num_experts_per_tok = k; })};
  axis.settings.push_back({"all", [](Draft& d) { d.num_experts_per_tok = 0; }});
  return axis;
}

SweepAxis expert_tensor_degree() {
  const auto set = [](Draft& d, int degree) { d.config.parallelism.expert_tensor_parallel_degree = degree; };
  SweepAxis axis = {"parallelism.expert_tensor_parallel_degree", counts({0, 1, 2}, set)};
  axis.settings.push_back({"tensor_parallel_degree", [](Draft& d) { d.divides_experts = true; }});
  return axis;
}

SweepAxis router_balance() {
  return {"routers",
          {{"free", [](Draft& d) { d.config.moe = {}; }},
           {"seq_aux_loss_coeff", [](Draft& d) { d.config.moe.seq_aux_loss_coeff = 0.2; }},
           {"global_aux_loss_coeff", [](Draft& d) { d.config.moe.global_aux_loss_coeff = 0.3; }},
           {"z_loss_coeff", [](Draft& d) { d.config.moe.z_loss_coeff = 0.05; }},
           {"all losses",
            [](Draft& d) {
              d.config.moe = {.seq_aux_loss_coeff = 0.2, .global_aux_loss_coeff = 0.3, .z_loss_coeff = 0.05};
            }},
           {"bias_update_rate", [](Draft& d) { d.config.moe.bias_update_rate = 0.05; }},
           {"freeze_router", [](Draft& d) { d.config.moe.freeze_router = true; }}}};
}

SweepAxis dispatch_bound() {
  SweepAxis axis = {"moe.dispatch_bound", {}};
  for (const double bound : {1.2, 0.3, 1.0, 100.0})
    axis.settings.push_back({fmt::format("{}", bound), [=](Draft& d) { d.config.moe.dispatch_bound = bound; }});
  axis.settings.push_back({"expert_parallel_degree", [](Draft& d) { d.receives_all_at_once = true; }});
  return axis;
}

/// By position: of equal tokens at the starts of documents, rounding decides whose score is larger.
SweepAxis capacity() {
  return {"moe.capacity_factor",
          {{"none", [](Draft&) {}},
           {"0.75", [](Draft& d) { d.config.moe.capacity_factor = 0.75; }},
           {"0.5", [](Draft& d) { d.config.moe.capacity_factor = 0.5; }}}};
}

SweepAxis expert_dispatch() {
  SweepAxis axis = {"parallelism.expert_dispatch", {}};
  for (const ExpertDispatch dispatch :
       {ExpertDispatch::direct, ExpertDispatch::hierarchical, ExpertDispatch::automatic, ExpertDispatch::all_gather})
    axis.settings.push_back({std::string(name_of(dispatch)), [=](Draft& d) {
                               d.config.parallelism.expert_dispatch = dispatch;
                               d.has_nodes =
                                   dispatch == ExpertDispatch::hierarchical || dispatch == ExpertDispatch::automatic;
                             }});
  return axis;
}

}  // namespace

std::vector<SweepAxis> with_mixture_axes(std::vector<SweepAxis> axes) {
  const auto recompute = std::ranges::find(axes, "training.recompute", &SweepAxis::name);
  for (const BlockOperation part : parts_of_mixture)
    recompute->settings.push_back(
        {std::string(name_of(part)), [=](Draft& d) { d.config.training.recompute = {part}; }});
  axes.front().settings = families_with_experts();
  std::erase_if(axes, [](const SweepAxis& axis) { return axis.name == "training.mlp_chunk_tokens"; });
  const auto windows = std::ranges::find(axes, "model.sliding_window", &SweepAxis::name);
  windows->settings.pop_back();  // of families without experts
  const std::vector<SweepAxis> of_experts = {
      {"model.num_experts", counts({8, 4, 5, 6, 12, 16}, [](Draft& d, int E) { d.num_experts = E; })},
      experts_per_token(),
      {"model.norm_topk_prob",
       {{"false", [](Draft& d) { d.normalises = false; }}, {"true", [](Draft& d) { d.normalises = true; }}}},
      {"model.n_group", counts({1, 2}, [](Draft& d, int groups) { d.config.model.mixture.n_group = groups; })},
      {"layers with experts",
       {{"all", [](Draft& d) { d.expert_layers = ExpertLayers::all; }},
        {"every second", [](Draft& d) { d.expert_layers = ExpertLayers::every_second; }},
        {"all but the first", [](Draft& d) { d.expert_layers = ExpertLayers::all_but_the_first; }}}},
      {"parallelism.expert_parallel_degree",
       counts({1, 2, 3, 4, 8}, [](Draft& d, int ep) { d.config.parallelism.expert_parallel_degree = ep; })},
      expert_tensor_degree(),
      router_balance(),
      dispatch_bound(),
      capacity(),
      expert_dispatch(),
  };
  axes.insert(axes.end(), of_experts.begin(), of_experts.end());
  return axes;
}

}  // namespace echelon::testing
