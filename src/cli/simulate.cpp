// echelon simulate: what a step of a config would take on a machine.
#include "predict/simulate.h"

#include "checkpoint/model_config.h"
#include "cli/simulate_rows.h"
#include "cli/verb.h"
#include "spec/config_reader.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

struct SimulateArguments {
  std::string config;
  std::string machine;
  std::string profile;
  bool json = false;
  RowsArguments rows;
};

void print_text(const Simulation& result) {
  fmt::print("step: {:.6f} s  mfu: {:.2f}%  hfu: {:.2f}%  memory: {:.2f}GiB{}\n", result.step_seconds, 100 * result.mfu(), 100 * result.hfu(),
             static_cast<double>(result.peak_memory_bytes()) / (1 << 30), result.fits() ? "" : " (does not fit)");
}

void print_json(const Simulation& result) {
  const nlohmann::ordered_json json = {{"predicted_seconds", result.step_seconds},
                                       {"predicted_memory_bytes", result.peak_memory_bytes()},
                                       {"fits", result.fits()},
                                       {"mfu", 100 * result.mfu()},
                                       {"hfu", 100 * result.hfu()},
                                       {"sent_bytes", result.sent_bytes}};
  fmt::print("{}\n", json.dump());
}

ExitStatus run_simulation(const SimulateArguments& arguments, const std::vector<std::string>& config_arguments) {
  if (!arguments.rows.path.empty()) {
    RowsArguments rows = arguments.rows;
    rows.profile = arguments.profile;
    rows.json = arguments.json;
    return simulate_rows(rows);
  }
  const RunConfig config = read_run_config({.path = arguments.config, .arguments = config_arguments, .read_model = read_model_spec});
  const Blueprint blueprint(config);
  const SoftwareProfile profile = software_profile(arguments.profile.empty() ? "echelon" : arguments.profile);
  const Simulation result = simulate(blueprint, calibrated(profile, read_machine(arguments.machine)), {.profile = profile});
  arguments.json ? print_json(result) : print_text(result);
  return ExitStatus::success;
}

}  // namespace

VerbAction declare_simulate(CLI::App& app, const std::vector<std::string>& config_arguments) {
  const auto arguments = std::make_shared<SimulateArguments>();  // CLI11's options write to what the action reads
  app.add_option("config", arguments->config, "a TOML file; without one, the keys below say everything");
  app.add_option("--machine", arguments->machine, "a machine that is shipped (h100, a100-80, ...) or a file (docs/machines.md)");
  app.add_option("--profile", arguments->profile, "the software whose way of working is timed; default: echelon");
  app.add_option("--rows", arguments->rows.path, "a table of runs instead of a config: CSV with the columns of published results");
  app.add_option("--constants", arguments->rows.constants, "")->group("");
  app.add_flag("--json", arguments->json, "the outcome as JSON");
  return [arguments, config_arguments] { return run_simulation(*arguments, config_arguments); };
}

}  // namespace echelon
