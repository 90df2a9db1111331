// echelon draw: what every pipeline rank computes when, with a backward that takes twice as long as a forward.
#include "schedule/draw.h"

#include "cli/verb.h"
#include "schedule/lower.h"
#include "spec/run_config.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

struct DrawArguments {
  std::string schedule = "1F1B";
  int stages = 4;
  int microbatches = 8;
  double backward = 2;
  int columns = 160;
  bool json = false;
};

Schedule schedule_of(PipelineSchedule kind, int num_stages, int num_microbatches) {
  switch (kind) {
    case PipelineSchedule::naive: return naive_schedule(num_stages, num_microbatches);
    case PipelineSchedule::gpipe: return gpipe_schedule(num_stages, num_microbatches);
    case PipelineSchedule::one_f_one_b: return one_f_one_b_schedule(num_stages, num_microbatches);
  }
  return {};
}

void print_json(const Timeline& timeline, const std::vector<Program>& programs) {
  auto events = nlohmann::ordered_json::array();
  for (const Event& event : timeline.events) {
    const Action& action = programs[static_cast<std::size_t>(event.rank)][static_cast<std::size_t>(event.action_id)];
    if (!is_compute(action.kind)) continue;
    events.push_back({{"rank", event.rank}, {"action", name_of(action.kind)}, {"microbatch", action.microbatch}, {"start", event.start}, {"end", event.end}});
  }
  const nlohmann::ordered_json json = {{"bubble", bubble(timeline, programs)}, {"events", events}};
  fmt::print("{}\n", json.dump());
}

ExitStatus draw_schedule(const DrawArguments& arguments) {
  const PipelineSchedule kind = parse_pipeline_schedule("--schedule", arguments.schedule);
  const Schedule schedule = schedule_of(kind, arguments.stages, arguments.microbatches);
  const std::vector<Program> programs = lower(schedule, {.stages = std::vector<StageShape>(static_cast<std::size_t>(arguments.stages))});
  const Timeline timeline = play(programs, cost_of({.forward = 1, .backward = arguments.backward}));
  if (arguments.json) {
    print_json(timeline, programs);
  } else {
    fmt::print("{}bubble: {:.1f}% of the ranks' time\n", draw(timeline, programs, {.max_columns = arguments.columns}), 100 * bubble(timeline, programs));
  }
  return ExitStatus::success;
}

}  // namespace

VerbAction declare_draw(CLI::App& app, const std::vector<std::string>& /*config_arguments*/) {
  const auto arguments = std::make_shared<DrawArguments>();  // CLI11's options write to what the action reads
  app.add_option("--schedule", arguments->schedule, "naive, GPipe or 1F1B")->capture_default_str();
  app.add_option("--stages", arguments->stages, "pipeline stages")->check(CLI::Range(1, 256))->capture_default_str();
  app.add_option("--microbatches", arguments->microbatches, "microbatches of a step")->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--backward", arguments->backward, "time of a backward, a forward being 1")->check(CLI::Range(0.01, 100.0))->capture_default_str();
  app.add_option("--columns", arguments->columns, "a longer drawing is scaled down to this")->check(CLI::Range(10, 100000))->capture_default_str();
  app.add_flag("--json", arguments->json, "the events as JSON");
  return [arguments] { return draw_schedule(*arguments); };
}

}  // namespace echelon
