// echelon simulate: predicts the time of a step of a config on a machine.
#include "predict/simulation/simulate.h"
#include "predict/published/software_memory.h"

#include "cli/command.h"
#include "cli/documents/asked_documents.h"
#include "cli/model_argument.h"
#include "cli/simulate_rows.h"
#include "measure/this_machine.h"
#include "pages/simulate_html.h"
#include "pages/simulate_output.h"
#include "predict/experts/expert_nodes.h"
#include "predict/experts/read_expert_load.h"
#include "report/output_file.h"
#include "spec/config/config_reader.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
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
  std::string trace, svg, html, documents, expert_load;
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
  const bool is_read = colon != std::string_view::npos && read_number(rest.substr(0, colon), rank) &&
                       read_number(rest.substr(colon + 1), factor);
  require(is_read, "--slow {} is not a rank and a factor of its time (use --slow rank=17:1.3)", text);
  return {rank, factor};
}

/// None if no option describes failures.
std::optional<FailureModel> failures_of(const SimulateArguments& arguments, bool says_mtbf, bool says_costs) {
  require(says_mtbf || !says_costs,
          "--checkpoint-seconds and --restart-seconds need --mtbf-hours, the mean time between failures");
  if (!says_mtbf) return std::nullopt;
  constexpr double longest_seconds = 3.6e9;  // a million hours
  FailureModel failures = arguments.failures;
  failures.mtbf_seconds = arguments.mtbf_hours * 3600;
  const auto in_hours = [](double seconds) { return seconds / 3600; };
  require(failures.mtbf_seconds > 0 && failures.mtbf_seconds <= longest_seconds,
          "--mtbf-hours={} is not a time between failures (use {})", arguments.mtbf_hours,
          failures.mtbf_seconds > 0 ? in_hours(longest_seconds) : 1);
  for (const auto& [flag, seconds] : {std::pair{"--checkpoint-seconds", failures.checkpoint_seconds},
                                      std::pair{"--restart-seconds", failures.restart_seconds}})
    require(seconds >= 0 && seconds <= longest_seconds, "{}={} is not a time (use {})", flag, seconds,
            std::clamp(seconds, 0.0, longest_seconds));
  require(failures.checkpoint_seconds > 0, "--mtbf-hours={} needs --checkpoint-seconds above 0 (example: 30)",
          arguments.mtbf_hours);
  require(goodput(failures, best_interval_seconds(failures)) > 1e-9,
          "--mtbf-hours={} leaves no time to train with --checkpoint-seconds={} and --restart-seconds={} (use {:.3g})",
          arguments.mtbf_hours, failures.checkpoint_seconds, failures.restart_seconds,
          in_hours(failures.checkpoint_seconds + failures.restart_seconds));
  return failures;
}

std::map<int, double> slow_ranks_of(const std::vector<std::string>& texts) {
  std::map<int, double> slow_ranks;
  for (const std::string& text : texts) {
    const auto slow = parse_slow_rank(text);
    require(slow_ranks.insert(slow).second, "--slow {} names rank {} twice; name each rank once", text, slow.first);
  }
  return slow_ranks;
}

/// The named machine, else the config's, else this one.
MachineSpec machine_for(const SimulateArguments& arguments, const RunConfig& config) {
  if (!arguments.machine.empty()) return read_machine(arguments.machine);
  return config.metrics.machine.empty() ? this_machine() : read_machine(config.metrics.machine);
}

/// Each row has its own machine and layout, and several steps have no common timeline.
void require_rows_alone(const SimulateArguments& arguments, const std::vector<std::string>& config_arguments) {
  const std::pair<std::string_view, bool> others[] = {
      {"CONFIG", !arguments.config.empty()}, {"--machine", !arguments.machine.empty()},
      {"--slow", !arguments.slow.empty()},   {"--mtbf-hours", arguments.mtbf_hours != 0},
      {"--trace", !arguments.trace.empty()}, {"--svg", !arguments.svg.empty()},
      {"--html", !arguments.html.empty()},   {"--expert-load", !arguments.expert_load.empty()}};
  for (const auto& [name, is_given] : others)
    require(!is_given, "--rows={} takes runs from its rows, and {} is for a single run; omit one", arguments.rows.path,
            name);
  require(config_arguments.empty(), "--rows={} takes runs from its rows, and {} is for a single run; omit one",
          arguments.rows.path, config_arguments.empty() ? "" : config_arguments.front());
}

ExitStatus run_rows(const SimulateArguments& arguments) {
  RowsArguments rows = arguments.rows;
  rows.profile = arguments.profile;
  rows.documents = arguments.documents;
  rows.json = arguments.json;
  return simulate_rows(rows);
}

ExitStatus run_simulation(const SimulateArguments& arguments, const std::optional<FailureModel>& failures,
                          const std::vector<std::string>& config_arguments) {
  if (!arguments.rows.path.empty()) {
    require_rows_alone(arguments, config_arguments);
    return run_rows(arguments);
  }
  const auto trace = OutputFile::unless_empty("--trace", arguments.trace, "step.json"),
             svg = OutputFile::unless_empty("--svg", arguments.svg, "step.svg");
  std::optional<HtmlFile> html;
  if (!arguments.html.empty()) html.emplace(arguments.html);
  SoftwareProfile profile = software_profile(arguments.profile.empty() ? "echelon" : arguments.profile);
  RunConfig config = read_run_config(source_of_model(arguments.config, config_arguments));
  config.expert_load = read_expert_load(arguments.expert_load, config);
  const MachineSpec machine = calibrated(profile, machine_for(arguments, config));
  config = with_nodes_of(config, machine);
  const std::optional<DocumentLoad> documents = asked_load(arguments.documents, config);
  if (documents) profile = with_documents(profile, *documents);
  const SimulationOptions options{.profile = profile,
                                  .slow_ranks = slow_ranks_of(arguments.slow),
                                  .attention_shares = documents ? documents->rank_shares : std::vector<double>()};
  // As in train.
  if (profile.is_echelon && !machine.host && config.training.device == DeviceChoice::automatic)
    config.training.device = DeviceChoice::cuda;
  const Blueprint blueprint(config);
  Simulation result = simulate(blueprint, machine, options);
  if (!profile.is_echelon) result.memory = software_memory(profile, blueprint, result.memory);
  const SimulatedRun run{.blueprint = blueprint,
                         .result = result,
                         .machine_spec = machine,
                         .machine = machine.name.empty() ? arguments.machine : machine.name,
                         .profile = profile,
                         .failures = failures,
                         .slow_ranks = options.slow_ranks,
                         .save = profile.is_echelon && config.checkpoint.enable
                                     ? std::optional(predicted_save(blueprint, machine))
                                     : std::nullopt,
                         .documents = documents,
                         .first_sequence = html && config.parallelism.context_parallel_degree > 1
                                               ? first_sequence(arguments.documents, config)
                                               : DocumentOffsets()};
  if (trace) trace->write(to_chrome_json(drawn_ranks(run), result.timeline));
  if (svg) svg->write(to_svg(drawn_ranks(run), result.timeline));
  if (html) html->write(simulation_page(run));
  arguments.json ? fmt::print("{}\n", to_json(run).dump()) : fmt::print("{}", to_text(run));
  return ExitStatus::success;
}

}  // namespace

CommandAction declare_simulate(CLI::App& app, const std::vector<std::string>& config_arguments) {
  const auto arguments = std::make_shared<SimulateArguments>();  // CLI11's options write to what the action reads
  app.add_option("model", arguments->config, model_argument_help);
  app.add_option(
      "--machine", arguments->machine,
      "a machine by name, or its file (docs/reference/machines.md); default: the config's metrics.machine, or this "
      "machine, measured once");
  app.add_option(
      "--profile", arguments->profile,
      fmt::format("the training software to model: {}; default: echelon", fmt::join(software_profile_names(), ", ")));
  app.add_option("--rows", arguments->rows.path,
                 "a table of runs instead of a config: CSV with the columns of published results");
  app.add_option("--constants", arguments->rows.constants, "")->group("");
  app.add_option("--documents", arguments->documents, documents_help)->type_name("FILE|MEAN:SPREAD");
  app.add_option("--expert-load", arguments->expert_load, expert_load_help)->type_name("LOAD");
  app.add_option("--slow", arguments->slow, "a rank that computes slower, e.g. rank=17:1.3; several may be given")
      ->type_name("rank=R:FACTOR");
  auto* const mtbf =
      app.add_option("--mtbf-hours", arguments->mtbf_hours, "mean time between failures of the whole job, for goodput");
  auto* const checkpoint = app.add_option("--checkpoint-seconds", arguments->failures.checkpoint_seconds,
                                          "in which a checkpoint stops training");
  auto* const restart =
      app.add_option("--restart-seconds", arguments->failures.restart_seconds, "from a failure until training resumes");
  app.add_option("--trace", arguments->trace, "a file for the step's timeline as a trace (ui.perfetto.dev)");
  app.add_option("--html", arguments->html, "a page about the step, to be opened in a browser");
  app.add_option("--svg", arguments->svg, "a file for the step's timeline as a drawing");
  app.add_flag("--json", arguments->json, "the result as JSON");
  return [arguments, config_arguments, mtbf, checkpoint, restart] {
    const bool says_costs = checkpoint->count() + restart->count() > 0;
    return run_simulation(*arguments, failures_of(*arguments, mtbf->count() > 0, says_costs), config_arguments);
  };
}

}  // namespace echelon
