#include "pages/simulate_output.h"

#include "base/text/written_number.h"
#include "base/units.h"
#include "pages/config_words.h"
#include "predict/experts/read_expert_load.h"
#include "predict/published/promise.h"
#include "report/html/html_report.h"
#include "report/text_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace echelon {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

std::int64_t tokens_of(const RunConfig& config) { return config.training.global_batch_size * config.training.seq_len; }

/// As in the page of --html and in `plan`.
std::string bytes_text(double bytes) { return text_of(HtmlUnit::bytes, bytes); }

std::string percent(double part, double whole) { return fmt::format("{:.1f} %", whole > 0 ? 100 * part / whole : 0); }

/// Four significant digits.
std::string seconds_text(double seconds) {
  if (seconds > 0 && seconds < 1e-3) return fmt::format("{:.4g} us", seconds * 1e6);
  return seconds > 0 && seconds < 1 ? fmt::format("{:.4g} ms", seconds * 1e3) : written(seconds) + " s";
}

double total(const std::map<std::string, double>& seconds) {
  double sum = 0;
  for (const auto& [name, each] : seconds) sum += each;
  return sum;
}

/// MFU counts attention to all pairs of tokens. HFU is never below MFU, so the figure has another name if the causal
/// mask saves more than is recomputed.
std::string computed_part(const Simulation& r) {
  if (r.hfu() >= r.mfu()) return fmt::format("HFU {:.2f} %", 100 * r.hfu());
  return fmt::format("{:.2f} % without the masked pairs of causal attention", 100 * r.hfu());
}

std::string promise_of(const SimulatedRun& run) {
  return promise_text(run.result, run.blueprint.config(), run.machine_spec, run.profile);
}

std::string headline(const SimulatedRun& run) {
  const Simulation& r = run.result;
  const double num_ranks = run.blueprint.mesh().num_ranks(),
               tokens_per_second = static_cast<double>(tokens_of(run.blueprint.config())) / r.step_seconds;
  std::string text = fmt::format("{}\non {}, as {} works, at {}\n\n", layout_line(run.blueprint.config()), run.machine,
                                 run.profile.name, rates_text(run.profile, run.machine_spec));
  text += fmt::format("step    {}\n        {} tokens per second ({} per device)\n", promise_of(run),
                      text_of(HtmlUnit::number, tokens_per_second),
                      text_of(HtmlUnit::number, tokens_per_second / num_ranks));
  text += fmt::format("speed   {:.4g} TFLOP/s per device, MFU {:.2f} %{}, {}\n",
                      r.model_flops / r.step_seconds / num_ranks / 1e12, 100 * r.mfu(),
                      mfu_share_text(run.blueprint.config()), computed_part(r));
  const auto largest = std::max_element(r.memory.begin(), r.memory.end(),
                                        [](const auto& a, const auto& b) { return a.arena_bytes < b.arena_bytes; });
  const auto excess = std::max_element(r.memory.begin(), r.memory.end(), [](const auto& a, const auto& b) {
    return a.arena_bytes - a.device_bytes < b.arena_bytes - b.device_bytes;
  });
  text += fmt::format("memory  {} of {} on stage {}", bytes_text(static_cast<double>(largest->arena_bytes)),
                      bytes_text(static_cast<double>(largest->device_bytes)), largest - r.memory.begin());
  if (largest->reserved_bytes > 0)
    text += fmt::format(" ({} are reserved)", bytes_text(static_cast<double>(largest->reserved_bytes)));
  if (r.fits() && !fullness_of(r).empty())
    return text + fmt::format(": fits, {:.1f} % full\n", 100 * r.least_room().share());
  if (r.fits()) return text + ": fits\n";
  return text + fmt::format(": does not fit; stage {} is {} too large\n", excess - r.memory.begin(),
                            bytes_text(static_cast<double>(excess->arena_bytes - excess->device_bytes)));
}

std::string parts_table(const Simulation& result) {
  const StepParts& parts = result.parts;
  Rows rows = {{"where the time goes", "of a step", "share"}};
  const auto add = [&](const std::string& name, double seconds) {
    if (seconds > 0) rows.push_back({"  " + name, seconds_text(seconds), percent(seconds, result.step_seconds)});
  };
  add("compute", parts.compute_seconds);
  for (const auto& [group, seconds] : parts.exposed_communication_seconds)
    add("exposed communication, " + group, seconds);
  add("bubble", parts.bubble_seconds);
  add("waiting for slower replicas", parts.waiting_seconds);
  if (parts.waits_for_host()) add("waiting for the host", parts.host_seconds);
  add("optimizer", parts.optimizer_seconds);
  add("other", parts.other_seconds);
  return text_table(rows);
}

/// Mean over the ranks of a stage.
StepParts parts_of_stage(const Simulation& result, int stage) {
  StepParts parts;
  int num_ranks = 0;
  for (const SimulatedRank& rank : result.ranks) {
    if (rank.pipeline_rank != stage) continue;
    StepParts of_all = rank.parts;
    parts += (of_all *= rank.num_ranks);
    num_ranks += rank.num_ranks;
  }
  return parts *= 1.0 / num_ranks;
}

std::int64_t at_peak(const PredictedMemory& memory, MemoryCategory category) {
  const auto found = memory.bytes_at_peak.find(category);
  return found == memory.bytes_at_peak.end() ? 0 : found->second;
}

Json by_name(const std::map<MemoryCategory, std::int64_t>& categories) {
  Json json = Json::object();
  for (const auto& [category, bytes] : categories) json[std::string(name_of(category))] = bytes;
  return json;
}

std::string stage_table(const Simulation& result) {
  constexpr double mib = 1 << 20;
  const bool is_large = static_cast<double>(result.peak_memory_bytes()) >= gib;
  const double unit = is_large ? gib : mib;
  std::vector<MemoryCategory> categories = memory_categories();
  std::erase_if(categories, [&](MemoryCategory category) {
    return std::all_of(result.memory.begin(), result.memory.end(),
                       // 0.00.
                       [&](const auto& each) { return static_cast<double>(at_peak(each, category)) < 0.005 * unit; });
  });
  Rows rows = {{"stage", "compute", "exposed", "bubble", is_large ? "GiB" : "MiB", "of"}};
  for (const MemoryCategory category : categories) rows[0].emplace_back(name_of(category));
  const auto in_units = [&](std::int64_t bytes) { return fmt::format("{:.2f}", static_cast<double>(bytes) / unit); };
  for (std::size_t stage = 0; stage < result.memory.size(); ++stage) {
    const StepParts parts = parts_of_stage(result, static_cast<int>(stage));
    const PredictedMemory& memory = result.memory[stage];
    rows.push_back({fmt::format("  {}", stage), percent(parts.compute_seconds, result.step_seconds),
                    percent(total(parts.exposed_communication_seconds), result.step_seconds),
                    percent(parts.bubble_seconds, result.step_seconds), in_units(memory.arena_bytes),
                    in_units(memory.device_bytes)});
    for (const MemoryCategory category : categories) rows.back().push_back(in_units(at_peak(memory, category)));
  }
  return text_table(rows);
}

/// Where loads of experts differ every rank is simulated as the most loaded one.
std::string traffic_table(const Simulation& result, const RunConfig& config) {
  const bool is_of_most_loaded = config.model.has_experts() && !config.expert_load.is_balanced();
  Rows rows = {{"sent in a step, by", is_of_most_loaded ? "all ranks, each as the most loaded one" : "all ranks"}};
  for (const auto& [group, bytes] : result.sent_bytes)
    if (bytes > 0) rows.push_back({"  " + group, bytes_text(static_cast<double>(bytes))});
  return rows.size() > 1 ? text_table(rows) : "nothing is sent\n";
}

/// Ranks that are slower than the fastest of their stage, slowest first.
std::string slower_ranks_table(const Simulation& result) {
  std::vector<double> least(result.memory.size(), no_time);
  for (const SimulatedRank& rank : result.ranks) {
    double& of_stage = least[static_cast<std::size_t>(rank.pipeline_rank)];
    of_stage = std::min(of_stage, rank.parts.compute_seconds);
  }
  const auto excess = [&](const SimulatedRank& rank) {
    return rank.parts.compute_seconds / least[static_cast<std::size_t>(rank.pipeline_rank)] - 1;
  };
  std::vector<const SimulatedRank*> slower;
  for (const SimulatedRank& rank : result.ranks)
    if (excess(rank) > 1e-3) slower.push_back(&rank);
  if (slower.empty()) return "";
  std::stable_sort(slower.begin(), slower.end(), [&](const auto* a, const auto* b) { return excess(*a) > excess(*b); });
  constexpr std::size_t most = 8;
  Rows rows = {{"slower, from rank", "ranks", "stage", "compute", "more"}};
  for (std::size_t i = 0; i < std::min(most, slower.size()); ++i)
    rows.push_back({fmt::format("  {}", slower[i]->rank), grouped(static_cast<double>(slower[i]->num_ranks)),
                    std::to_string(slower[i]->pipeline_rank), seconds_text(slower[i]->parts.compute_seconds),
                    percent(excess(*slower[i]), 1)});
  return "\n" + text_table(rows) +
         (slower.size() > most ? fmt::format("  ... and {} more\n", slower.size() - most) : "");
}

std::string failures_text(const FailureModel& failures, double step_seconds) {
  const double interval = best_interval_seconds(failures), part = goodput(failures, interval);
  return fmt::format(
      "\nfailures every {} h: a checkpoint of {} every {} ({} steps) is best; goodput {:.2f} %, {} per step that "
      "lasts\n"
      "  (Young 1974: every {}, Daly 2006: every {})\n",
      written(failures.mtbf_seconds / 3600), seconds_text(failures.checkpoint_seconds), seconds_text(interval),
      std::max(std::int64_t{1}, static_cast<std::int64_t>(std::llround(interval / step_seconds))), 100 * part,
      seconds_text(step_seconds / part), seconds_text(young_interval_seconds(failures)),
      seconds_text(daly_interval_seconds(failures)));
}

Json to_json(const StepParts& parts) {
  return {{"compute_seconds", parts.compute_seconds},
          {"exposed_communication_seconds", parts.exposed_communication_seconds},
          {"bubble_seconds", parts.bubble_seconds},
          {"waiting_seconds", parts.waiting_seconds},
          {"host_seconds", parts.host_seconds},
          {"optimizer_seconds", parts.optimizer_seconds},
          {"other_seconds", parts.other_seconds}};
}

Json stages_json(const Simulation& result) {
  Json stages = Json::array();
  for (std::size_t stage = 0; stage < result.memory.size(); ++stage) {
    const PredictedMemory& memory = result.memory[stage];
    stages.push_back({{"stage", stage},
                      {"parts", to_json(parts_of_stage(result, static_cast<int>(stage)))},
                      {"memory_bytes", by_name(memory.category_bytes)},
                      {"memory_at_peak_bytes", by_name(memory.bytes_at_peak)},
                      {"arena_bytes", memory.arena_bytes},
                      {"device_bytes", memory.device_bytes},
                      {"reserved_bytes", memory.reserved_bytes}});
  }
  return stages;
}

Json ranks_json(const Simulation& result) {
  Json ranks = Json::array();
  for (const SimulatedRank& rank : result.ranks)
    ranks.push_back({{"rank", rank.rank},
                     {"stage", rank.pipeline_rank},
                     {"num_ranks", rank.num_ranks},
                     {"parts", to_json(rank.parts)}});
  return ranks;
}

Json to_json(const FailureModel& failures) {
  const double interval = best_interval_seconds(failures);
  return {{"mtbf_seconds", failures.mtbf_seconds},
          {"checkpoint_seconds", failures.checkpoint_seconds},
          {"restart_seconds", failures.restart_seconds},
          {"best_interval_seconds", interval},
          {"young_interval_seconds", young_interval_seconds(failures)},
          {"daly_interval_seconds", daly_interval_seconds(failures)},
          {"goodput", goodput(failures, interval)}};
}

ContextBytes context_bytes(const SimulatedRun& run) {
  return context_bytes(run.blueprint, *run.documents, run.profile);
}

}  // namespace

std::string to_text(const SimulatedRun& run) {
  std::string text = headline(run) + "\n" + parts_table(run.result) + "\n" + stage_table(run.result) + "\n" +
                     traffic_table(run.result, run.blueprint.config());
  if (const std::string warning = warning_of(run.result, run.blueprint.config(), run.machine_spec); !warning.empty())
    text += "\n" + warning + "\n";
  if (run.documents) text += "\n" + to_text(*run.documents, context_bytes(run));
  if (const std::string load = expert_load_text(run.blueprint.config()); !load.empty()) text += "\n" + load;
  if (run.save) text += "\n" + to_text(*run.save);
  text += slower_ranks_table(run.result);
  return run.failures ? text + failures_text(*run.failures, run.result.step_seconds) : text;
}

// Fields that `train` also reports have the names of report/step_report.h.
Json to_json(const SimulatedRun& run) {
  const Simulation& r = run.result;
  const std::int64_t tokens = tokens_of(run.blueprint.config());
  Json json = {{"predicted_seconds", r.step_seconds},
               {"predicted_memory_bytes", r.peak_memory_bytes()},
               {"fits", r.fits()},
               {"machine", run.machine},
               {"profile", run.profile.name},
               {"rates", rates_text(run.profile, run.machine_spec)},
               {"tokens", tokens},
               {"step_seconds", r.step_seconds},
               {"tokens_per_second", static_cast<double>(tokens) / r.step_seconds},
               {"tflops", r.model_flops / r.step_seconds / 1e12},
               {"mfu", 100 * r.mfu()},
               {"hfu", 100 * r.hfu()},
               {"memory_peak_bytes", r.peak_memory_bytes()},
               {"world_size", run.blueprint.mesh().num_ranks()},
               {"comm_bytes", r.ranks.front().sent_bytes},
               {"sent_bytes", r.sent_bytes},
               {"parts", to_json(r.parts)},
               {"stages", stages_json(r)},
               {"ranks", ranks_json(r)},
               {"num_events", r.num_events}};
  json.update(promise_json(r, run.blueprint.config(), run.machine_spec, run.profile));
  if (const ExpertLoad& load = run.blueprint.config().expert_load; !load.is_balanced()) json["expert_load"] = load.name;
  if (run.documents) json["documents"] = to_json(*run.documents, context_bytes(run));
  if (run.save) json["checkpoint"] = to_json(*run.save);
  if (run.failures) json["failures"] = to_json(*run.failures);
  return json;
}

// A pass that takes longer than alone stretches them.
std::vector<std::vector<DrawnMessage>> drawn_messages(const SimulatedRank& rank) {
  std::vector<std::vector<DrawnMessage>> drawn;
  for (std::size_t action = 0; action < rank.layer_messages.size(); ++action) {
    std::vector<DrawnMessage>& of_action = drawn.emplace_back();
    for (const MessageTime& message : rank.layer_messages[action])
      if (const double whole = rank.alone_seconds[action]; whole > 0 && message.purpose == RowPurpose::other)
        of_action.push_back({fmt::format("{} over {}", name_of(message.kind), name_of(message.group)),
                             message.start / whole, message.end / whole});
  }
  return drawn;
}

std::vector<DrawnRank> drawn_ranks(const SimulatedRun& run) {
  std::vector<DrawnRank> drawn;
  const bool are_several = run.result.ranks.size() > run.result.memory.size();
  for (const SimulatedRank& rank : run.result.ranks) {
    const Program& program =
        run.blueprint.programs(ProgramKind::training)[static_cast<std::size_t>(rank.pipeline_rank)];
    const std::string whose = are_several ? fmt::format(", rank {}", rank.rank) : "";
    drawn.push_back({fmt::format("stage {}{}", rank.pipeline_rank, whose), &program, rank.lanes, rank.lane_names,
                     rank.layers_send_seconds, drawn_messages(rank)});
  }
  return drawn;
}

}  // namespace echelon
