#include "parity/sweep/rules.h"

#include <algorithm>
#include <utility>

namespace echelon::testing {
namespace {

const std::string reshard = "parallelism.reshard_after_forward", shard = "parallelism.data_parallel_shard_degree",
                  zero = "parallelism.zero_level", tensor = "parallelism.tensor_parallel_degree",
                  sequence = "parallelism.sequence_parallel", context = "parallelism.context_parallel_degree",
                  balancer = "parallelism.context_parallel_load_balancer", balance = "data.balance_batch",
                  exchange = "parallelism.context_parallel_method", pipeline = "parallelism.pipeline_parallel_degree",
                  schedule = "parallelism.pipeline_parallel_schedule", virtual_stages = "parallelism.virtual_stages",
                  microbatches = "microbatches", recompute = "training.recompute", method = "training.recompute_method",
                  chunks = "training.mlp_chunk_tokens";

void refuse_data_parallel(Refusals& refused) {
  refused.add({{zero, {"0"}}, {shard, {"2", "3", "4 or more"}}}, zero,
              "level 0 shards nothing; replicas are data_parallel_replicate_degree");
  refused.add({{reshard, {"never", "step"}}, {zero, {"0", "1", "2"}}}, reshard, "only level 3 shards parameters");
}

void refuse_windows(Refusals& refused) {
  refused.add({{"model.sliding_window", {"4", "4 after the first layer"}},
               {"model.model_type",
                {"gpt2", "llama", "qwen2_moe", "qwen3_moe", "olmoe", "dots1", "deepseek_v2", "deepseek_v3"}}},
              "model.sliding_window", "config.json has none");
  refused.add({{"model.sliding_window", {"4 after the first layer"}}, {"model.model_type", {"mixtral"}}},
              "model.max_window_layers", "all layers have the same");
}

void refuse_tensor_parallel(Refusals& refused) {
  refused.add({{"model.num_key_value_heads", {"2", "1"}}, {"model.model_type", {"deepseek_v2", "deepseek_v3"}}},
              "model.num_key_value_heads", "each head has keys of its own");
  refused.add({{"model.num_key_value_heads", {"2"}}, {tensor, {"3"}}}, tensor,
              "a degree above the number of kv heads must be a multiple of it");
  const std::string tokens = "the tokens of a microbatch are split evenly over the tensor-parallel ranks";
  refused.add({{sequence, {"true"}}, {"training.seq_len", {"11"}}, {tensor, {"3", "4"}}, {context, {"1"}}}, sequence,
              tokens);
  refused.add({{sequence, {"true"}},
               {"training.seq_len", {"11"}},
               {tensor, {"2"}},
               {"training.micro_batch_size", {"1"}},
               {context, {"1"}}},
              sequence, tokens);
}

void refuse_context_parallel(Refusals& refused) {
  refused.add({{balancer, {"none", "striped", "per_document", "packed"}}, {context, {"1"}}}, balancer,
              "a rank has whole sequences");
  const std::string documents = "documents", without = "none";
  refused.add({{balancer, {"per_document", "packed"}}, {documents, {without}}}, balancer, "it distributes documents");
  refused.add({{balance, {"true"}}, {documents, {without}}}, balance, "sequences have equal pairs");
  refused.add({{exchange, {"all_gather", "ulysses", "ulysses_ring"}}, {context, {"1"}}}, exchange,
              "a rank has whole sequences");
  for (const auto& [name, key] : {std::pair<std::string, std::string>{"ulysses", context},
                                  {"ulysses_ring", "parallelism.context_parallel_ulysses_degree"}})
    refused.add({{exchange, {name}}, {context, {"3"}}, {"model.num_key_value_heads", {"2"}}, {tensor, {"1"}}}, key,
                "three ranks cannot share two kv heads");
}

void refuse_schedules(Refusals& refused) {
  refused.add(
      {{schedule, {"naive", "GPipe", "1F1B", "ZB-H1", "ZB-H2", "ZB-1p", "ZB-2p"}}, {virtual_stages, {"2", "3"}}},
      virtual_stages, "the schedule has one stage per rank");
  refused.add({{schedule, {"Interleaved1F1B"}}, {virtual_stages, {"1"}}}, virtual_stages,
              "with one stage per rank it would be 1F1B");
  refused.add({{schedule, {"ZB-V", "DualPipeV"}}, {virtual_stages, {"1", "3"}}}, virtual_stages,
              "a V has two stages per rank");
  const std::string both_ways = "each rank needs a microbatch in each direction";
  refused.add({{schedule, {"DualPipeV"}}, {microbatches, {"1"}}}, schedule, both_ways);
  refused.add({{schedule, {"DualPipeV"}}, {microbatches, {"2", "3"}}, {pipeline, {"2", "3", "4"}}}, schedule,
              both_ways);
  refused.add({{schedule, {"DualPipeV"}}, {microbatches, {"5"}}, {pipeline, {"3", "4"}}}, schedule, both_ways);
}

void refuse_recomputation(Refusals& refused) {
  refused.add({{recompute, {"qk_norm"}},
               {"model.model_type", {"gpt2", "llama", "qwen2", "mixtral", "qwen2_moe", "deepseek_v2", "deepseek_v3"}}},
              recompute, "the model has no norms of q and k");
  refused.add({{recompute, {"none"}}, {method, {"block"}}}, method,
              "without recomputation the choice of blocks has no effect");
  refused.add({{chunks, {"5"}}, {recompute, {"none", "selective", "o_proj", "qk_norm"}}}, chunks,
              "chunks are recomputed");
  refused.add({{chunks, {"5"}}, {method, {"block"}}}, chunks, "chunks are recomputed");
  refused.add({{chunks, {"5"}}, {"model.model_type", {"mixtral", "qwen3_moe"}}}, chunks,
              "the rows of experts are not divided");
}

}  // namespace

void Refusals::add(const std::vector<Part>& parts, const std::string& key, const std::string& why,
                   std::function<bool(const Draft&)> when) {
  Rule rule = {.terms = {}, .when = std::move(when), .why = why, .key = key};
  for (const Part& part : parts) rule.terms.push_back(term(part));
  const bool can_apply = std::ranges::none_of(rule.terms, [](const Rule::Term& of) { return of.settings.empty(); });
  if (can_apply) rules_.push_back(rule);
}

void Refusals::add_consequence(const std::vector<Part>& parts, const std::string& why) {
  const std::size_t before = rules_.size();
  add(parts, parts.back().axis, why);
  for (std::size_t i = before; i < rules_.size(); ++i) rules_[i].follows = true;
}

void Refusals::add_consequences(const std::string& axis, const std::string& other, const std::string& why,
                                const std::function<bool(const Draft&)>& when) {
  const auto a = std::ranges::find(axes_, axis, &SweepAxis::name),
             b = std::ranges::find(axes_, other, &SweepAxis::name);
  for (const AxisSetting& of_a : a->settings)
    for (const AxisSetting& of_b : b->settings) {
      Draft draft;
      of_a.set(draft), of_b.set(draft);
      if (when(draft)) add_consequence({{axis, {of_a.name}}, {other, {of_b.name}}}, why);
    }
}

bool Refusals::has(const std::string& axis) const {
  return std::ranges::find(axes_, axis, &SweepAxis::name) != axes_.end();
}

Rule::Term Refusals::term(const Part& part) const {
  const auto axis = std::ranges::find(axes_, part.axis, &SweepAxis::name);
  Rule::Term found = {.axis = static_cast<std::size_t>(axis - axes_.begin()), .settings = {}};
  for (std::size_t i = 0; axis != axes_.end() && i < axis->settings.size(); ++i)
    if (part.settings.empty() || std::ranges::find(part.settings, axis->settings[i].name) != part.settings.end())
      found.settings.push_back(i);
  return found;
}

std::vector<Rule> refusals(const std::vector<SweepAxis>& axes) {
  Refusals refused(axes);
  refuse_data_parallel(refused);
  refuse_windows(refused);
  refuse_tensor_parallel(refused);
  refuse_context_parallel(refused);
  refuse_schedules(refused);
  refuse_recomputation(refused);
  refuse_experts(refused);
  return refused.rules();
}

}  // namespace echelon::testing
