#include "plan/search/cost.h"
#include "plan/search/long_run.h"
#include "plan/text/explanation.h"
#include "plan/text/fields.h"
#include "plan/text/text.h"
#include "predict/published/promise.h"
#include "predict/saving/predicted_save.h"
#include "spec/config/config_reader.h"

namespace echelon {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

Json fields_of(const Plan& plan, const PlanRequest& request) {
  const auto& [shape, pipeline, recompute, data, order] = plan.choice;
  const Simulation& outcome = plan.outcome;
  Json exposed = Json::object(), memory = Json::array();
  for (const auto& [group, seconds] : outcome.parts.exposed_communication_seconds) exposed[group] = seconds;
  for (const PredictedMemory& each : outcome.memory) {
    Json categories = Json::object();
    for (const auto& [category, bytes] : each.category_bytes) categories[std::string(name_of(category))] = bytes;
    memory.push_back({{"arena_bytes", each.arena_bytes},
                      {"device_bytes", each.device_bytes},
                      {"reserved_bytes", each.reserved_bytes},
                      {"categories", categories}});
  }
  Json json = {{"predicted_seconds", outcome.step_seconds},
               {"predicted_memory_bytes", outcome.peak_memory_bytes()},
               {"fits", outcome.fits()},
               {"mfu", 100 * outcome.mfu()},
               {"hfu", 100 * outcome.hfu()},
               {"tokens_per_second", tokens_per_second(plan)},
               {"price_per_million_tokens", price_json(1e6 * price_per_token(plan, request))},
               {"gpus", plan.config.mesh_shape().num_ranks()},
               {"dtype", name_of(plan.config.training.dtype)},
               {"tensor_parallel_degree", shape.tp},
               {"sequence_parallel", shape.sequence_parallel},
               {"pipeline_parallel_degree", shape.pp},
               {"pipeline_parallel_schedule", name_of(pipeline.schedule)},
               {"virtual_stages", pipeline.num_virtual},
               {"pipeline_parallel_layout", pipeline.layout.counts},
               {"context_parallel_degree", shape.cp},
               {"context_parallel_method", name_of(shape.exchange.method)},
               {"context_parallel_ulysses_degree",
                shape.exchange.method == ContextMethod::ulysses_ring ? shape.exchange.head_ranks : 0},
               {"context_parallel_load_balancer", name_of(plan.config.parallelism.context_parallel_load_balancer)},
               {"expert_parallel_degree", shape.ep},
               {"expert_tensor_parallel_degree",
                plan.config.model.has_experts() ? expert_tensor_degree(plan.config.parallelism) : 1},
               {"expert_dispatch", name_of(dispatch_of(shape))},
               {"dispatch_bound", shape.dispatch_bound},
               {"data_parallel_replicate_degree", data.replicate},
               {"data_parallel_shard_degree", data.shard},
               {"zero_level", data.zero_level},
               {"reshard_after_forward", name_of(data.reshard)},
               {"order", name_of(order)},
               {"micro_batch_size", shape.micro_batch_size},
               {"num_microbatches", shape.num_microbatches},
               {"recompute", names_of(recompute.operations)},
               {"recompute_num_layers", recompute.num_blocks},
               {"parts",
                {{"compute_seconds", outcome.parts.compute_seconds},
                 {"exposed_communication_seconds", exposed},
                 {"bubble_seconds", outcome.parts.bubble_seconds},
                 {"waiting_seconds", outcome.parts.waiting_seconds},
                 {"host_seconds", outcome.parts.host_seconds},
                 {"optimizer_seconds", outcome.parts.optimizer_seconds},
                 {"other_seconds", outcome.parts.other_seconds}}},
               {"memory", memory},
               {"config", to_toml(plan.config)}};
  json.update(promise_json(outcome, plan.config, request.machine, request.profile));
  if (plan.config.checkpoint.enable)
    json["checkpoint"] = to_json(predicted_save(Blueprint(plan.config), request.machine));
  if (request.long_training) json["training"] = to_json(long_run(plan, request));
  return json;
}

Json fields_of(const PlanResult& result, const PlanRequest& request) {
  Json json = {{"dtype", name_of(request.base.training.dtype)},
               {"profile", request.profile.name},
               {"rates", rates_text(request.profile, request.machine)},
               {"configurations", result.num_configurations},
               {"evaluated", result.num_evaluated},
               {"programs_played", result.num_stepped},
               {"schedules_played", result.num_played},
               {"work", result.work},
               {"seconds", result.seconds},
               {"within", result.within},
               {"complete", result.is_complete},
               {"proven", result.num_proven}};
  if (!request.base.expert_load.is_balanced()) json["expert_load"] = request.base.expert_load.name;
  if (!request.note.empty()) json["note"] = request.note;
  if (!request.chooses_dtype) return json;
  json["in_other_formats"] = Json::array();
  for (const Plan& other : result.in_other_formats)
    json["in_other_formats"].push_back({{"dtype", name_of(other.config.training.dtype)},
                                        {"predicted_seconds", other.outcome.step_seconds},
                                        {"fits", other.outcome.fits()}});
  return json;
}

std::string to_json(const PlanResult& result, const PlanRequest& request) {
  Json plans = Json::array();
  for (const Plan& plan : result.plans) plans.push_back(fields_of(plan, request));
  Json json = fields_of(result, request);
  json["plans"] = plans;
  if (result.draws)
    json["draws"] = {{"wins", result.draws->wins},
                     {"longest_seconds", result.draws->longest_seconds},
                     {"safest", result.draws->safest}};
  if (result.in_default_order)
    json["in_default_order"] = {{"predicted_seconds", result.in_default_order->outcome.step_seconds},
                                {"order", name_of(result.in_default_order->choice.order)}};
  if (result.without_context) json["without_context_parallelism"] = fields_of(*result.without_context, request);
  for (const BalancedStep& step : result.balanced)
    json["balanced"].push_back(
        {{"balancer", name_of(step.balancer)}, {"predicted_seconds", step.seconds}, {"fits", step.fits}});
  if (result.nearest) {
    json["nearest"] = fields_of(*result.nearest, request);
    json["nearest"]["proven"] = result.is_nearest_proven;
  }
  if (!result.suggestions.empty()) json["mends"] = result.suggestions;
  return json.dump() + "\n";
}

}  // namespace echelon
