#include "parity/sweep/axes.h"

#include "parity/sweep/mixture_axes.h"
#include "parity/sweep/rules.h"

#include <fmt/format.h>

#include <algorithm>

namespace echelon::testing {
namespace {

using SettingList = std::vector<AxisSetting>;
template <class T>
AxisSetting number(T ParallelConfig::*field, T value) {
  return {fmt::format("{}", value), [=](Draft& d) { d.config.parallelism.*field = value; }};
}

SettingList numbers(std::int64_t ParallelConfig::*field, const std::vector<std::int64_t>& values) {
  SettingList settings;
  for (const std::int64_t value : values) settings.push_back(number(field, value));
  return settings;
}

SettingList families() {
  SettingList settings;
  for (const Family family :
       {Family::llama, Family::gpt2, Family::qwen2, Family::qwen3, Family::mixtral, Family::qwen3_moe})
    settings.push_back({std::string(name_of(family)), [=](Draft& d) {
                          d.config.model = family_defaults(family);
                          d.has_experts = family == Family::mixtral || family == Family::qwen3_moe;
                          if (family == Family::qwen3_moe) d.expert_layers = ExpertLayers::every_second;
                        }});
  return settings;
}

SettingList resharding() {
  SettingList settings;
  for (const auto reshard : {ReshardAfterForward::microbatch, ReshardAfterForward::never, ReshardAfterForward::step})
    settings.push_back(
        {std::string(name_of(reshard)), [=](Draft& d) { d.config.parallelism.reshard_after_forward = reshard; }});
  return settings;
}

SettingList schedules() {
  SettingList settings;
  for (const ScheduleEntry& entry : all_schedules())
    settings.push_back({std::string(entry.name),
                        [kind = entry.kind](Draft& d) { d.config.parallelism.pipeline_parallel_schedule = kind; }});
  settings.push_back({"from a file", [](Draft& d) { d.reads_schedule = true; }});
  return settings;
}

SettingList balancers() {
  SettingList settings;
  for (const LoadBalancer balancer : load_balancers)
    settings.push_back({std::string(name_of(balancer)),
                        [=](Draft& d) { d.config.parallelism.context_parallel_load_balancer = balancer; }});
  return settings;
}

SettingList documents() {
  const auto masks = [](Draft& d) { d.config.data.reset_attention_mask = true; };
  const auto masks_and_positions = [=](Draft& d) {
    masks(d);
    d.config.data.reset_position_ids = d.config.data.eod_mask_loss = true;
  };
  return {{"none", [](Draft& d) { d.config.data = {}; }},
          {"masked", masks},
          {"positions", masks_and_positions},
          {"packed", [=](Draft& d) {
             masks_and_positions(d);
             d.config.data.packing = Packing::best_fit;
           }}};
}

SettingList context_methods() {
  SettingList settings;
  for (const ContextMethod method :
       {ContextMethod::ring, ContextMethod::all_gather, ContextMethod::ulysses, ContextMethod::ulysses_ring})
    settings.push_back(
        {std::string(name_of(method)), [=](Draft& d) { d.config.parallelism.context_parallel_method = method; }});
  return settings;
}

SettingList recomputed() {
  using enum BlockOperation;
  SettingList settings;
  for (const BlockOperations& operations :
       {BlockOperations(), attention_internals, whole_block, BlockOperations{core_attn, mlp}, {o_proj}, {qk_norm}})
    settings.push_back({fmt::format("{}", fmt::join(names_of(operations), ", ")),
                        [=](Draft& d) { d.config.training.recompute = operations; }});
  return settings;
}

SettingList microbatch_counts() {
  SettingList settings;
  for (const int count : {2, 1, 3, 5, 8})
    settings.push_back({fmt::format("{}", count), [=](Draft& d) { d.microbatches = count; }});
  return settings;
}

/// The first setting of each axis is the plainest. The model's family comes first, since it sets the whole model.
std::vector<SweepAxis> make_axes() {
  using P = ParallelConfig;
  SettingList shards = numbers(&P::data_parallel_shard_degree, {1, 2, 3});
  shards.push_back({"4 or more", [](Draft& d) { d.fills_the_world = true; }});
  return {
      {"model.model_type", families()},
      {"model.tie_word_embeddings",
       {{"false", [](Draft& d) { d.config.model.tie_word_embeddings = false; }},
        {"true", [](Draft& d) { d.config.model.tie_word_embeddings = true; }}}},
      {"model.num_key_value_heads",
       {{"as many as heads", [](Draft& d) { d.num_kv_heads = 0; }},
        {"2", [](Draft& d) { d.num_kv_heads = 2; }},
        {"1", [](Draft& d) { d.num_kv_heads = 1; }}}},
      {"model.sliding_window",
       {{"0", [](Draft& d) { d.window = 0; }},
        {"4", [](Draft& d) { d.window = 4; }},
        {"4 after the first layer", [](Draft& d) { d.window = 4, d.first_window_layer = 1; }}}},
      {"vocabulary, heads and feed-forward width",
       {{"divide by every degree", [](Draft& d) { d.sizes_divide = true; }},
        {"divide by none", [](Draft& d) { d.sizes_divide = false; }}}},
      {"parallelism.data_parallel_replicate_degree", numbers(&P::data_parallel_replicate_degree, {1, 2, 3})},
      {"parallelism.data_parallel_shard_degree", shards},
      {"parallelism.zero_level", numbers(&P::zero_level, {1, 0, 2, 3})},
      {"parallelism.reshard_after_forward", resharding()},
      {"parallelism.tensor_parallel_degree", numbers(&P::tensor_parallel_degree, {1, 2, 3, 4})},
      {"parallelism.sequence_parallel", {number(&P::sequence_parallel, false), number(&P::sequence_parallel, true)}},
      {"parallelism.context_parallel_degree", numbers(&P::context_parallel_degree, {1, 2, 3, 4})},
      {"parallelism.context_parallel_load_balancer", balancers()},
      {"parallelism.context_parallel_method", context_methods()},
      {"parallelism.pipeline_parallel_degree", numbers(&P::pipeline_parallel_degree, {1, 2, 3, 4})},
      {"parallelism.pipeline_parallel_schedule", schedules()},
      {"parallelism.virtual_stages", numbers(&P::virtual_stages, {0, 1, 2, 3})},
      {"layers on stages",
       {{"even", [](Draft& d) { d.split = LayerSplit::even; }},
        {"with a remainder", [](Draft& d) { d.split = LayerSplit::remainder; }},
        {"pipeline_parallel_layout as a list", [](Draft& d) { d.split = LayerSplit::counts; }},
        {"pipeline_parallel_layout as letters", [](Draft& d) { d.split = LayerSplit::letters; }},
        {"fewer layers than stages", [](Draft& d) { d.split = LayerSplit::thin; }}}},
      {"microbatches", microbatch_counts()},
      {"training.micro_batch_size",
       {{"1", [](Draft& d) { d.config.training.micro_batch_size = 1; }},
        {"2", [](Draft& d) { d.config.training.micro_batch_size = 2; }}}},
      {"training.seq_len",
       {{"12", [](Draft& d) { d.config.training.seq_len = 12; }},
        {"11", [](Draft& d) { d.config.training.seq_len = 11; }}}},
      {"documents", documents()},
      {"data.balance_batch",
       {{"false", [](Draft& d) { d.config.data.balance_batch = false; }},
        {"true", [](Draft& d) { d.config.data.balance_batch = true; }}}},
      {"training.recompute", recomputed()},
      {"training.recompute_method",
       {{"uniform", [](Draft& d) { d.config.training.recompute_method = RecomputeMethod::uniform; }},
        {"block", [](Draft& d) { d.config.training.recompute_method = RecomputeMethod::block; }}}},
      {"training.mlp_chunk_tokens",
       {{"0", [](Draft& d) { d.config.training.mlp_chunk_tokens = 0; }},
        {"5", [](Draft& d) { d.config.training.mlp_chunk_tokens = 5; }}}},
      {"targets",
       {{"all valid", [](Draft& d) { d.targets = Targets::all; }},
        {"unequal over ranks", [](Draft& d) { d.targets = Targets::unequal; }},
        {"of one sequence alone", [](Draft& d) { d.targets = Targets::of_one_sequence; }},
        {"of one rank alone", [](Draft& d) { d.targets = Targets::of_one_rank; }}}},
      {"training.max_norm",
       {{"0", [](Draft& d) { d.config.training.max_norm = 0; }},
        {"0.1", [](Draft& d) { d.config.training.max_norm = 0.1; }}}},
  };
}

}  // namespace

bool applies(const SweepTable& table, const Rule& rule, const Settings& settings) {
  for (const Rule::Term& term : rule.terms)
    if (settings[term.axis] == not_set || std::ranges::find(term.settings, settings[term.axis]) == term.settings.end())
      return false;
  if (!rule.when) return true;
  Settings of_terms(settings.size(), not_set);
  for (const Rule::Term& term : rule.terms) of_terms[term.axis] = settings[term.axis];
  return rule.when(draft_of(table, of_terms));
}

bool is_refused(const SweepTable& table, const Settings& settings) {
  return std::ranges::any_of(table.rules, [&](const Rule& rule) { return applies(table, rule, settings); });
}

const SweepTable& sweep_table() {
  static const SweepTable table = [] {
    SweepTable made = {.name = "layouts", .axes = make_axes(), .rules = {}};
    made.rules = refusals(made.axes);
    return made;
  }();
  return table;
}

const SweepTable& mixture_table() {
  static const SweepTable table = [] {
    SweepTable made = {.name = "mixtures", .axes = with_mixture_axes(make_axes()), .rules = {}};
    made.rules = refusals(made.axes);
    return made;
  }();
  return table;
}

}  // namespace echelon::testing
