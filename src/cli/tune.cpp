// echelon tune: runs the planner's best few here, learns from the seconds that they take, and ranks again.
#include "predict/tune.h"

#include "base/error.h"
#include "checkpoint/model_config.h"
#include "cli/verb.h"
#include "engine/time_steps.h"
#include "spec/config_reader.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>

namespace echelon {
namespace {

struct TuneArguments {
  PlanQuestion question;
  std::int64_t steps = 5;
  std::string output, machine_output;
  bool json = false;
};

void write_file(std::string_view option, const std::string& path, const std::string& text) {
  if (path.empty()) return;
  std::ofstream file(path);
  file << text;
  if (!file.flush()) throw Failure(fmt::format("{}={} cannot be written; check the folder and the space that is left", option, path));
}

double median_seconds(const RunConfig& config, std::int64_t steps) {
  std::vector<double> seconds = time_steps(config, steps);
  std::nth_element(seconds.begin(), seconds.begin() + steps / 2, seconds.end());
  return seconds[static_cast<std::size_t>(steps / 2)];
}

ExitStatus run_tuning(const TuneArguments& arguments) {
  const PlanRequest request = read_plan_request(arguments.question);
  const Tuning tuning = tune(request, [&](const RunConfig& config) { return median_seconds(config, arguments.steps); });
  write_file("--output", arguments.output, to_toml(tuning.fastest().plan.config));
  write_file("--machine-output", arguments.machine_output, tuning.machine.host ? to_toml(*tuning.machine.host) : to_toml(tuning.machine));
  fmt::print("{}", arguments.json ? to_json(tuning) : to_text(tuning));
  return ExitStatus::success;
}

}  // namespace

VerbAction declare_tune(CLI::App& app, const std::vector<std::string>& config_arguments) {
  const auto arguments = std::make_shared<TuneArguments>();  // CLI11's options write to what the action reads
  PlanQuestion& question = arguments->question;
  question.top = 3;
  app.add_option("--model,model", question.model, "a config file (its parallelism is left aside), a preset or a Hugging Face folder");
  app.add_option("--machine", question.machine, "what is known of this machine: a name, or a file such as echelon bench writes");
  app.add_option("--gpus", question.gpus, "ranks");
  app.add_option("--global-batch-size", question.global_batch_size, "sequences per step, over all ranks");
  app.add_option("--seq-len", question.seq_len, "tokens per sequence");
  app.add_option("--top", question.top, "plans that are run")->capture_default_str();
  app.add_option("--steps", arguments->steps, "of each, after one that is not counted; the median counts")->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--output", arguments->output, "write the plan that took least as a config for echelon train");
  app.add_option("--machine-output", arguments->machine_output, "write the machine as it is now known, for --machine");
  app.add_flag("--json", arguments->json, "the outcome as JSON");
  return [arguments, config_arguments] {
    arguments->question.settings = config_arguments;
    arguments->question.read_model = read_model_spec;
    return run_tuning(*arguments);
  };
}

}  // namespace echelon
