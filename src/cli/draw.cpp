// echelon draw: the timeline of every pipeline rank from flags alone, with its bubble and activations in flight.
#include "schedule/draw/draw.h"
#include "base/text_file.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/context_parallel/draw_context.h"
#include "cli/exchange/draw_exchange.h"
#include "pages/draw_html.h"
#include "report/html/schedule_drawing.h"
#include "report/output_file.h"
#include "schedule/draw/torch_csv.h"
#include "schedule/generators/catalog.h"
#include "schedule/simulation/rates.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t most_passes = 1 << 19;  // all of them are stored in memory and drawn
constexpr ScheduleKeys keys = {.schedule = "--schedule",
                               .num_virtual = "--virtual",
                               .num_microbatches = "--microbatches",
                               .memory_limit = "--memory-limit"};

struct DrawArguments {
  std::string schedule = "1F1B", schedule_csv, format = "text", output, html;
  int stages = 4, microbatches = 8, num_virtual = 0, columns = 160;
  double backward = 2;
  PassTimes times{};
  DrawContextArguments context;
  ExchangeRequest exchange;
  // Qi et al. 2023, table 1: W stores 32 s b h of (34 + 5 a s / h) s b h, here with a s / h = 8.
  MemoryLimit memory{.limit = 0, .weight_memory = 32.0 / 74};
  bool json = false;
};

struct Drawn {
  Schedule schedule;
  Timeline timeline;
  std::vector<double> peaks;
  double cost_ms = 0;
};

Schedule read_schedule(const std::string& path) {
  const std::optional<std::string> text = read_text_file(path);
  require(text.has_value(), "--schedule-csv={} cannot be read; check the path", path);
  return read_torch_csv(*text, path);
}

Schedule named_schedule(const DrawArguments& arguments) {
  const ScheduleRequest request = checked(
      parse_pipeline_schedule(keys.schedule, arguments.schedule),
      {arguments.stages, arguments.microbatches, arguments.num_virtual, arguments.times, arguments.memory}, keys);
  const std::int64_t per_microbatch = std::int64_t{request.num_ranks} * request.num_virtual;
  require(per_microbatch * request.num_microbatches <= most_passes,
          "--microbatches={} x --stages={} x --virtual={} are more than {} forwards (use --microbatches={})",
          request.num_microbatches, request.num_ranks, request.num_virtual, most_passes, most_passes / per_microbatch);
  return make_schedule(parse_pipeline_schedule(keys.schedule, arguments.schedule), request, keys);
}

Drawn draw_arguments(const DrawArguments& arguments) {
  Drawn drawn;
  drawn.schedule = arguments.schedule_csv.empty() ? named_schedule(arguments) : read_schedule(arguments.schedule_csv);
  drawn.timeline = simulate_schedule(drawn.schedule, arguments.times);
  drawn.peaks = peak_memory(drawn.schedule, arguments.memory.weight_memory);
  drawn.cost_ms = longest_rank(drawn.timeline, static_cast<int>(drawn.schedule.ranks.size()));
  check_memory(drawn.schedule, arguments.memory, keys.memory_limit);
  return drawn;
}

std::string to_json(const Drawn& drawn, const DrawArguments& arguments) {
  Json stages = Json::array(), events = Json::array();
  for (std::size_t rank = 0; rank < drawn.peaks.size(); ++rank) {
    stages.push_back({{"stage", rank},
                      {"peak_in_flight", drawn.peaks[rank]},
                      {"backward_input_frees", 1 - arguments.memory.weight_memory},
                      {"backward_weight_frees", arguments.memory.weight_memory}});
  }
  for (const Event& event : drawn.timeline.events) {
    const Action& action =
        drawn.schedule.ranks[static_cast<std::size_t>(event.rank)][static_cast<std::size_t>(event.action_id)];
    events.push_back({{"rank", event.rank},
                      {"action", name_of(action.kind)},
                      {"stage", action.stage},
                      {"microbatch", action.microbatch},
                      {"start", event.start},
                      {"end", event.end}});
  }
  const Json json = {{"bubble_rate", bubble_rate(drawn.cost_ms, drawn.schedule.num_microbatches, arguments.times)},
                     {"cost_ms", drawn.cost_ms},
                     {"bubble", bubble(drawn.timeline, drawn.schedule.ranks)},
                     {"stages", stages},
                     {"events", events}};
  return json.dump() + "\n";
}

std::string to_text(const Drawn& drawn, const DrawArguments& arguments) {
  return fmt::format(
      "{}bubble: {:.1f}% of the ranks' time; cost {:.6g} ms, bubble rate {:.4f}; microbatches in flight at most: "
      "{:.4g}\n",
      draw(drawn.timeline, drawn.schedule.ranks, {.max_columns = arguments.columns}),
      100 * bubble(drawn.timeline, drawn.schedule.ranks), drawn.cost_ms,
      bubble_rate(drawn.cost_ms, drawn.schedule.num_microbatches, arguments.times), fmt::join(drawn.peaks, " "));
}

std::string in_format(const Drawn& drawn, const DrawArguments& arguments) {
  if (arguments.json) return to_json(drawn, arguments);
  if (arguments.format == "svg") return to_svg(drawn.schedule, drawn.timeline);
  if (arguments.format == "trace") return to_chrome_json(drawn.schedule, drawn.timeline);
  return to_text(drawn, arguments);
}

std::string schedule_drawing(const DrawArguments& arguments) {
  const Drawn drawn = draw_arguments(arguments);
  if (!arguments.html.empty()) {
    const std::string& name = arguments.schedule_csv.empty() ? arguments.schedule : arguments.schedule_csv;
    HtmlFile(arguments.html)
        .write(schedule_page({name, drawn.schedule, drawn.timeline, drawn.peaks, drawn.cost_ms, arguments.times}));
  }
  return in_format(drawn, arguments);
}

std::string context_drawing(const DrawArguments& arguments) {
  require(!arguments.json && arguments.format != "trace",
          "{} is of a schedule: the ranks of --context-parallel={} have no passes (use --format=text or svg)",
          arguments.json ? "--json" : "--format=trace", arguments.context.cp);
  const ContextPicture picture = drawn_context(arguments.context);
  if (!arguments.html.empty()) HtmlFile(arguments.html).write(context_page(picture));
  return arguments.format == "svg" ? to_svg(picture) : to_text(picture, arguments.columns);
}

std::string exchange_drawing(const DrawArguments& arguments) {
  require(!arguments.json, "--json is of a schedule: an exchange has no passes of a pipeline (use --format=trace)");
  const ExchangePicture picture = exchange_picture(arguments.exchange);
  if (!arguments.html.empty()) HtmlFile(arguments.html).write(exchange_page(picture));
  if (arguments.format == "svg") return to_svg(picture);
  return arguments.format == "trace" ? to_chrome_json(picture) : to_text(picture, arguments.columns);
}

ExitStatus run_draw(const DrawArguments& arguments) {
  constexpr std::string_view formats[] = {"text", "svg", "trace"};
  const bool is_known = std::find(std::begin(formats), std::end(formats), arguments.format) != std::end(formats);
  require(is_known, "--format={} is not one of {}; did you mean {}?", arguments.format, fmt::join(formats, ", "),
          closest_name(arguments.format, formats));
  const auto output = OutputFile::unless_empty("--output", arguments.output, "schedule.svg");
  const std::string drawing = arguments.context.cp > 0           ? context_drawing(arguments)
                              : arguments.exchange.num_ranks > 0 ? exchange_drawing(arguments)
                                                                 : schedule_drawing(arguments);
  if (output)
    output->write(drawing);
  else
    fmt::print("{}", drawing);
  return ExitStatus::success;
}

}  // namespace

CommandAction declare_draw(CLI::App& app, const std::vector<std::string>& /*config_arguments*/) {
  const auto arguments = std::make_shared<DrawArguments>();  // CLI11's options write to what the action reads
  std::vector<std::string_view> names;
  for (const ScheduleEntry& entry : all_schedules()) names.push_back(entry.name);
  const auto milliseconds = in_range(0, 1e9);
  app.add_option("--schedule", arguments->schedule, fmt::format("{}", fmt::join(names, ", ")))->capture_default_str();
  auto* const file = app.add_option("--schedule-csv", arguments->schedule_csv, "a file in PyTorch's format");
  app.add_option("--stages", arguments->stages, "pipeline ranks")->check(in_range(1, 1024))->capture_default_str();
  app.add_option("--microbatches", arguments->microbatches, "microbatches of a step")
      ->check(in_range(1, 65536))
      ->capture_default_str();
  app.add_option("--virtual", arguments->num_virtual, "stages of each rank; 0: 2 where a schedule has several, else 1")
      ->check(in_range(0, 64))
      ->capture_default_str();
  app.add_option("--forward-ms", arguments->times.forward, "of one microbatch on a rank, all its stages")
      ->check(milliseconds)
      ->capture_default_str();
  auto* const input = app.add_option("--backward-input-ms", arguments->times.backward_input, "likewise")
                          ->check(milliseconds)
                          ->capture_default_str();
  auto* const weight = app.add_option("--backward-weight-ms", arguments->times.backward_weight, "likewise")
                           ->check(milliseconds)
                           ->capture_default_str();
  app.add_option("--p2p-ms", arguments->times.p2p, "from the end of a pass until another rank has its result")
      ->check(milliseconds)
      ->capture_default_str();
  auto* const backward = app.add_option("--backward", arguments->backward, "both gradients together, half each")
                             ->check(in_range(0.01, 100.0))
                             ->capture_default_str();
  backward->excludes(input)->excludes(weight);
  app.add_option("--memory-limit", arguments->memory.limit,
                 "microbatches in flight; 0: p for ZB-1p, 2p for ZB-2p, none for others")
      ->check(in_range(0.0, 1e9))
      ->capture_default_str();
  app.add_option("--weight-memory", arguments->memory.weight_memory, "part of activations kept until W")
      ->check(in_range(0.0, 1.0))
      ->capture_default_str();
  auto* const format =
      app.add_option("--format", arguments->format, "text, svg or trace (for ui.perfetto.dev)")->capture_default_str();
  app.add_option("--output", arguments->output, "a file instead of the terminal");
  app.add_option("--html", arguments->html, "also an HTML page");
  app.add_option("--columns", arguments->columns, "a longer drawing is scaled down to this")
      ->check(in_range(10, 100000))
      ->capture_default_str();
  app.add_flag("--json", arguments->json, "rates, memory and events as JSON")->excludes(format);
  for (const char* const name : {"--schedule", "--stages", "--microbatches", "--virtual"})
    file->excludes(app.get_option(name));
  add_context_options(app, arguments->context);
  add_exchange_options(app, arguments->exchange);
  return [arguments, backward] {
    if (backward->count() > 0)
      arguments->times.backward_input = arguments->times.backward_weight = arguments->backward / 2;
    return run_draw(*arguments);
  };
}

}  // namespace echelon
