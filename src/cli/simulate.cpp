// echelon simulate: what a step of a config would take on a machine.
#include "predict/simulate.h"
#include "predict/software_memory.h"

#include "checkpoint/model_config.h"
#include "cli/simulate_html.h"
#include "cli/simulate_output.h"
#include "cli/simulate_rows.h"
#include "cli/verb.h"
#include "report/output_file.h"
#include "spec/config_reader.h"

#include <CLI/CLI.hpp>

#include <charconv>
#include <cmath>
#include <memory>

namespace echelon {
namespace {

struct SimulateArguments {
  std::string config;
  std::string machine;
  std::string profile;
  std::vector<std::string> slow;
  double mtbf_hours = 0;
  FailureModel failures = {};
  std::string trace, svg, html;
  bool has_html = false;
  bool json = false;
  RowsArguments rows;
};

template <class Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

/// "rank=17:1.3", or without the word.
std::pair<int, double> parse_slow_rank(const std::string& text) {
  std::string_view rest = text;
  constexpr std::string_view word = "rank=";
  if (rest.starts_with(word)) rest.remove_prefix(word.size());
  const std::size_t colon = rest.find(':');
  int rank = 0;
  double factor = 0;
  const bool is_read = colon != std::string_view::npos && read_number(rest.substr(0, colon), rank) && read_number(rest.substr(colon + 1), factor);
  require(is_read, "--slow {} names no rank and factor of its time; nearest: --slow rank=17:1.3", text);
  return {rank, factor};
}

/// None if nothing is said of failures.
std::optional<FailureModel> failures_of(const SimulateArguments& arguments, bool says_mtbf, bool says_costs) {
  require(says_mtbf || !says_costs, "--checkpoint-seconds and --restart-seconds say what failures cost, but not how often they come; add --mtbf-hours");
  if (!says_mtbf) return std::nullopt;
  require(std::isfinite(arguments.mtbf_hours) && arguments.mtbf_hours > 0, "--mtbf-hours={} is no time between failures; nearest: 1", arguments.mtbf_hours);
  FailureModel failures = arguments.failures;
  for (const auto& [flag, seconds] : {std::pair{"--checkpoint-seconds", failures.checkpoint_seconds}, std::pair{"--restart-seconds", failures.restart_seconds}})
    require(std::isfinite(seconds) && seconds >= 0, "{}={} is no time; nearest: 0", flag, seconds);
  failures.mtbf_seconds = arguments.mtbf_hours * 3600;
  return failures;
}

std::map<int, double> slow_ranks_of(const std::vector<std::string>& texts) {
  std::map<int, double> slow_ranks;
  for (const std::string& text : texts) {
    const auto slow = parse_slow_rank(text);
    require(slow_ranks.insert(slow).second, "--slow {} speaks of rank {} a second time; give each rank once", text, slow.first);
  }
  return slow_ranks;
}

ExitStatus run_rows(const SimulateArguments& arguments) {
  RowsArguments rows = arguments.rows;
  rows.profile = arguments.profile;
  rows.json = arguments.json;
  return simulate_rows(rows);
}

ExitStatus run_simulation(const SimulateArguments& arguments, const std::optional<FailureModel>& failures, const std::vector<std::string>& config_arguments) {
  if (!arguments.rows.path.empty()) return run_rows(arguments);
  const auto trace = OutputFile::unless_empty("--trace", arguments.trace, "step.json"), svg = OutputFile::unless_empty("--svg", arguments.svg, "step.svg");
  std::optional<HtmlFile> html;
  if (arguments.has_html) html.emplace(arguments.html);
  const SoftwareProfile profile = software_profile(arguments.profile.empty() ? "echelon" : arguments.profile);
  const SimulationOptions options{.profile = profile, .slow_ranks = slow_ranks_of(arguments.slow)};
  require(!arguments.machine.empty(), "simulate needs a machine, by name or as a file; nearest: --machine=h100");
  const MachineSpec machine = calibrated(profile, read_machine(arguments.machine));
  const Blueprint blueprint(read_run_config({.path = arguments.config, .arguments = config_arguments, .read_model = read_model_spec}));
  Simulation result = simulate(blueprint, machine, options);
  if (!profile.is_echelon) result.memory = software_memory(profile, blueprint, result.memory);
  const SimulatedRun run{.blueprint = blueprint,
                         .result = result,
                         .machine = machine.name.empty() ? arguments.machine : machine.name,
                         .profile = profile.name,
                         .failures = failures};
  if (trace) trace->write(to_chrome_json(drawn_ranks(run), result.timeline));
  if (svg) svg->write(to_svg(drawn_ranks(run), result.timeline));
  if (html) html->write(simulation_page(run));
  arguments.json ? fmt::print("{}\n", to_json(run).dump()) : fmt::print("{}", to_text(run));
  return ExitStatus::success;
}

}  // namespace

VerbAction declare_simulate(CLI::App& app, const std::vector<std::string>& config_arguments) {
  const auto arguments = std::make_shared<SimulateArguments>();  // CLI11's options write to what the action reads
  app.add_option("config", arguments->config, "a TOML file; without one, the keys below say everything");
  app.add_option("--machine", arguments->machine, "a machine that is shipped (h100, a100-80, ...) or a file (docs/machines.md)");
  app.add_option("--profile", arguments->profile, "the software whose way of working is timed; default: echelon");
  auto* const rows = app.add_option("--rows", arguments->rows.path, "a table of runs instead of a config: CSV with the columns of published results");
  app.add_option("--constants", arguments->rows.constants, "")->group("");
  app.add_option("--slow", arguments->slow, "a rank that computes slower, e.g. rank=17:1.3; several may be given")->type_name("rank=R:FACTOR");
  auto* const mtbf = app.add_option("--mtbf-hours", arguments->mtbf_hours, "mean time between failures of the whole job, for goodput");
  auto* const checkpoint = app.add_option("--checkpoint-seconds", arguments->failures.checkpoint_seconds, "in which a checkpoint stops training");
  auto* const restart = app.add_option("--restart-seconds", arguments->failures.restart_seconds, "from a failure until training goes on");
  app.add_option("--trace", arguments->trace, "a file for the step's timeline as a trace (ui.perfetto.dev)");
  auto* const html = app.add_option("--html", arguments->html, "a page about the step, to be opened in a browser")->excludes(rows);
  app.add_option("--svg", arguments->svg, "a file for the step's timeline as a drawing");
  app.add_flag("--json", arguments->json, "the outcome as JSON");
  return [arguments, config_arguments, mtbf, checkpoint, restart, html] {
    arguments->has_html = html->count() > 0;
    const bool says_costs = checkpoint->count() + restart->count() > 0;
    return run_simulation(*arguments, failures_of(*arguments, mtbf->count() > 0, says_costs), config_arguments);
  };
}

}  // namespace echelon
