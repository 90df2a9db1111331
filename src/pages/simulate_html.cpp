#include "pages/simulate_html.h"

#include "pages/context_parallel/context_picture.h"
#include "pages/run_page.h"
#include "predict/published/promise.h"
#include "spec/config/config_reader.h"

#include <fmt/format.h>

#include <algorithm>

namespace echelon {
namespace {

/// The first rank of each stage. It represents the others if no replica is slower.
std::vector<const SimulatedRank*> one_of_each_stage(const Simulation& result) {
  std::vector<const SimulatedRank*> ranks(result.memory.size(), nullptr);
  for (const SimulatedRank& rank : result.ranks) {
    const SimulatedRank*& first = ranks[static_cast<std::size_t>(rank.pipeline_rank)];
    if (first == nullptr) first = &rank;
  }
  return ranks;
}

std::vector<HtmlTile> tiles_of(const SimulatedRun& run) {
  const Simulation& result = run.result;
  const TrainingConfig& training = run.blueprint.config().training;
  const double tokens = static_cast<double>(training.global_batch_size * training.seq_len);
  const auto largest = std::max_element(result.memory.begin(), result.memory.end(),
                                        [](const auto& a, const auto& b) { return a.arena_bytes < b.arena_bytes; });
  return {{"Step time", text_of(HtmlUnit::seconds, result.step_seconds), "predicted"},
          {"Tokens per second", text_of(HtmlUnit::number, tokens / result.step_seconds),
           fmt::format("{} per device",
                       text_of(HtmlUnit::number, tokens / result.step_seconds / run.blueprint.mesh().num_ranks()))},
          {"MFU", text_of(HtmlUnit::fraction, result.mfu()),
           fmt::format("{}{}{}", result.hfu() < result.mfu() ? "" : "HFU ", text_of(HtmlUnit::fraction, result.hfu()),
                       result.hfu() < result.mfu() ? " without masked pairs" : "")},
          {"Memory", text_of(HtmlUnit::bytes, static_cast<double>(largest->arena_bytes)),
           fmt::format("of {}: {}", text_of(HtmlUnit::bytes, static_cast<double>(largest->device_bytes)),
                       result.fits() ? "fits" : "does not fit")},
          {"Bubble", text_of(HtmlUnit::fraction, result.parts.bubble_seconds / result.step_seconds),
           "of the step, mean over ranks"}};
}

HtmlBars time_of(const Simulation& result) {
  HtmlBars bars = {.title = "Where the time goes",
                   .note = "Of a step, for a rank of each stage; every moment belongs to one part.",
                   .unit = HtmlUnit::seconds};
  for (const SimulatedRank* rank : one_of_each_stage(result))
    bars.rows.push_back(
        {.label = fmt::format("pipeline rank {}", rank->pipeline_rank), .segments = page_segments(rank->parts)});
  return bars;
}

HtmlBars memory_of(const Simulation& result) {
  std::vector<StageMemory> stages;
  for (const PredictedMemory& memory : result.memory)
    stages.push_back({memory.bytes_at_peak, memory.arena_bytes, static_cast<double>(memory.device_bytes)});
  return page_memory(stages, "the device's memory");
}

HtmlBars traffic_of(const Simulation& result) {
  HtmlBars bars = {.title = "Traffic",
                   .note = "Bytes that the first rank of each stage sends in a step, by the ranks to which."};
  for (const SimulatedRank* rank : one_of_each_stage(result)) {
    HtmlBars::Row row = {.label = fmt::format("pipeline rank {}", rank->pipeline_rank)};
    for (const auto& [group, bytes] : rank->sent_bytes) row.segments.push_back({group, static_cast<double>(bytes)});
    bars.rows.push_back(std::move(row));
  }
  return bars;
}

HtmlTimeline timeline_of(const SimulatedRun& run) {
  std::vector<Program> programs;  // ids as in the timeline: one for each simulated rank
  for (const SimulatedRank& rank : run.result.ranks)
    programs.push_back(run.blueprint.programs(ProgramKind::training)[static_cast<std::size_t>(rank.pipeline_rank)]);
  HtmlTimeline timeline = html_timeline("Predicted step", run.result.timeline, programs);
  const bool has_several_replicas = run.result.ranks.size() > run.result.memory.size();
  if (has_several_replicas)
    timeline.note =
        "Replicas differ: a row has the name of its pipeline rank and of the first rank there that does this, for all "
        "that do the same at the same time.";
  for (std::size_t i = 0; i < run.result.ranks.size(); ++i) {
    const SimulatedRank& rank = run.result.ranks[i];
    timeline.rows[i] = has_several_replicas ? fmt::format("{}: rank {}", rank.pipeline_rank, rank.rank)
                                            : fmt::format("rank {}", rank.pipeline_rank);
  }
  return timeline;
}

}  // namespace

std::vector<HtmlBars::Segment> page_segments(const StepParts& parts) {
  std::vector<HtmlBars::Segment> bars = {{"compute", parts.compute_seconds}};
  for (const auto& [group, seconds] : parts.exposed_communication_seconds)
    bars.push_back({"exposed, " + group, seconds});
  bars.insert(bars.end(), {{"bubble", parts.bubble_seconds},
                           {"waiting for slower replicas", parts.waiting_seconds},
                           {"waiting for the host", parts.waits_for_host() ? parts.host_seconds : 0},
                           {"optimizer", parts.optimizer_seconds},
                           {"other", parts.other_seconds}});
  return bars;
}

HtmlReport simulation_page(const SimulatedRun& run) {
  const RunConfig& config = run.blueprint.config();
  HtmlReport page;
  page.title = page_title(config) + " of " + run.machine;
  page.summary = fmt::format("Predicted from the run's blueprint, as {} works: nothing was run.", run.profile.name);
  page.tiles = tiles_of(run);
  page.timelines = {timeline_of(run)};
  page.bars = {time_of(run.result), memory_of(run.result), traffic_of(run.result)};
  page.facts = page_facts(config);
  page.facts.insert(page.facts.begin(), {{"machine", run.machine}, {"software", run.profile.name}});
  page.facts.insert(page.facts.begin() + 2, {"rates", rates_text(run.profile, run.machine_spec)});
  page.facts.insert(page.facts.begin() + 3, {"step", promise_text(run.result, config, run.machine_spec, run.profile)});
  std::vector<std::string> slow;
  for (const auto& [rank, factor] : run.slow_ranks) slow.push_back(fmt::format("rank {} × {}", rank, factor));
  if (!slow.empty()) page.facts.push_back({"computes slower", fmt::format("{}", fmt::join(slow, ", "))});
  if (run.failures) {
    const double interval = best_interval_seconds(*run.failures);
    page.facts.push_back({"goodput", fmt::format("{} with a checkpoint every {}",
                                                 text_of(HtmlUnit::fraction, goodput(*run.failures, interval)),
                                                 text_of(HtmlUnit::seconds, interval))});
  }
  add_context_section(page, run.blueprint,
                      run.first_sequence.empty()
                          ? DrawnSequence()
                          : DrawnSequence{run.first_sequence, "Of the first sequence of the documents."});
  page.config = to_toml(config);
  return page;
}

}  // namespace echelon
