#include "cli/inspect/inspect_config.h"

#include "base/text/written_number.h"
#include "blueprint/step_summary.h"
#include "cli/model_argument.h"
#include "pages/config_words.h"
#include "predict/saving/predicted_save.h"
#include "report/text_table.h"
#include "spec/config/config_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using Json = nlohmann::ordered_json;

/// A row per pipeline rank. Categories that are empty on all ranks are omitted.
std::string memory_table(const StepSummary& summary) {
  std::int64_t largest = 0;
  for (const PipelineRankSummary& rank : summary.ranks) largest = std::max(largest, rank.arena_bytes);
  const bool in_gigabytes = largest >= 1'000'000'000;
  const double unit = in_gigabytes ? 1e9 : 1e6;
  std::vector<MemoryCategory> categories = memory_categories();
  std::erase_if(categories, [&](MemoryCategory category) {
    return std::all_of(summary.ranks.begin(), summary.ranks.end(),
                       [&](const PipelineRankSummary& rank) { return rank.category_bytes.at(category) == 0; });
  });
  std::vector<std::vector<std::string>> rows = {{fmt::format("{} of a rank", in_gigabytes ? "GB" : "MB")}};
  for (const MemoryCategory category : categories) rows[0].emplace_back(name_of(category));
  rows[0].insert(rows[0].end(), {"model states", "arena"});
  for (std::size_t i = 0; i < summary.ranks.size(); ++i) {
    const PipelineRankSummary& rank = summary.ranks[i];
    rows.push_back({summary.ranks.size() == 1 ? "each" : fmt::format("pipeline rank {}", i)});
    const auto add = [&](std::int64_t bytes) {
      rows.back().push_back(fmt::format("{:.3f}", static_cast<double>(bytes) / unit));
    };
    for (const MemoryCategory category : categories) add(rank.category_bytes.at(category));
    add(rank.model_state_bytes());
    add(rank.arena_bytes);
  }
  return text_table(rows);
}

/// For the pipeline rank that sends most in a group by an operation of that kind.
std::string traffic_table(const StepSummary& summary) {
  std::vector<TrafficSummary> most;
  for (const PipelineRankSummary& rank : summary.ranks)
    for (const TrafficSummary& each : rank.traffic) {
      const auto same = std::find_if(most.begin(), most.end(), [&](const TrafficSummary& t) {
        return t.group == each.group && t.kind == each.kind;
      });
      if (same == most.end())
        most.push_back(each);
      else if (each.num_calls > same->num_calls ||
               (each.num_calls == same->num_calls && each.sent_bytes > same->sent_bytes))
        *same = each;
    }
  if (most.empty()) return "nothing is sent\n";
  std::vector<std::vector<std::string>> rows = {
      {"sent in a step, by", "ranks", "operation", "calls", "the largest", "all together"}};
  for (const TrafficSummary& each : most)
    rows.push_back({name_of(each.group), std::to_string(each.group_size), std::string(name_of(each.kind)),
                    grouped(static_cast<double>(each.num_calls)),
                    with_unit(static_cast<double>(each.largest_bytes), "B"),
                    with_unit(static_cast<double>(each.sent_bytes), "B")});
  return text_table(rows);
}

void print(const RunConfig& config, const StepSummary& summary, const std::optional<PredictedSave>& save) {
  const std::string active =
      config.model.has_experts()
          ? fmt::format(", {} active", grouped(static_cast<double>(config.model.num_active_parameters())))
          : "";
  fmt::print("{}: {} parameters{}; {}\n", name_of(config.model.family),
             grouped(static_cast<double>(summary.num_parameters)), active, layout_line(config));
  fmt::print("a step: {} of the model, {} computed\n\n", with_unit(summary.model_flops, "flop"),
             with_unit(summary.hardware_flops, "flop"));
  fmt::print("{}\n{}", memory_table(summary), traffic_table(summary));
  if (save) fmt::print("\n{}", to_text(*save));
}

Json to_json(const PipelineRankSummary& rank) {
  Json memory, traffic = Json::array();
  for (const auto& [category, bytes] : rank.category_bytes) memory[std::string(name_of(category))] = bytes;
  for (const TrafficSummary& each : rank.traffic)
    traffic.push_back({{"group", name_of(each.group)},
                       {"group_size", each.group_size},
                       {"operation", name_of(each.kind)},
                       {"calls", each.num_calls},
                       {"largest_bytes", each.largest_bytes},
                       {"sent_bytes", each.sent_bytes}});
  return {{"rank", rank.rank},
          {"num_parameters", rank.num_parameters},
          {"memory_bytes", memory},
          {"model_state_bytes", rank.model_state_bytes()},
          {"arena_bytes", rank.arena_bytes},
          {"flops", rank.flops},
          {"boundary_bytes", rank.boundary_bytes},
          {"traffic", traffic}};
}

Json to_json(const RunConfig& config, const StepSummary& summary, const std::optional<PredictedSave>& save) {
  Json ranks = Json::array();
  for (const PipelineRankSummary& rank : summary.ranks) ranks.push_back(to_json(rank));
  Json json = {{"model_type", name_of(config.model.family)},    {"num_parameters", summary.num_parameters},
               {"world_size", config.mesh_shape().num_ranks()}, {"order", name_of(config.parallelism.order)},
               {"num_microbatches", config.num_microbatches()}, {"model_flops", summary.model_flops},
               {"hardware_flops", summary.hardware_flops},      {"pipeline_ranks", ranks}};
  if (config.model.has_experts()) json["num_active_parameters"] = config.model.num_active_parameters();
  if (save) json["checkpoint"] = to_json(*save);
  return json;
}

}  // namespace

ExitStatus inspect_config(const std::string& path, const std::vector<std::string>& config_arguments, bool json) {
  const RunConfig config = read_run_config(source_of_model(path, config_arguments));
  const Blueprint blueprint(config);
  const StepSummary summary = summary_of(blueprint);
  std::optional<PredictedSave> save;
  if (config.checkpoint.enable) save = planned_save(blueprint);
  if (json)
    fmt::print("{}\n", to_json(config, summary, save).dump());
  else
    print(config, summary, save);
  return ExitStatus::success;
}

}  // namespace echelon
