// echelon tune: runs the planner's best few layouts here, learns from their times, and ranks again.
#include "plan/search/tune.h"

#include "backend/backend.h"
#include "base/median.h"
#include "checkpoint/model_reader.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "measure/this_machine.h"
#include "report/output_file.h"
#include "spec/config/config_reader.h"
#include "train/time_steps.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>

namespace echelon {
namespace {

struct TuneArguments {
  PlanQuestion question;
  std::int64_t steps = 5;
  std::string output, machine_output;
  bool json = false;
};

ExitStatus run_tuning(const TuneArguments& arguments) {
  const PlanRequest request = read_plan_request(arguments.question);
  const auto output = OutputFile::unless_empty("--output", arguments.output, "plan.toml");
  const auto machine_output = OutputFile::unless_empty("--machine-output", arguments.machine_output, "machine.toml");
  const Tuning tuning =
      tune(request, [&](const RunConfig& config) { return median(time_steps(config, arguments.steps)); });
  if (output) output->write(to_toml(tuning.fastest().plan.config));
  if (machine_output)
    machine_output->write(tuning.machine.host ? to_toml(*tuning.machine.host) : to_toml(tuning.machine));
  fmt::print("{}", arguments.json ? to_json(tuning, request) : to_text(tuning));
  if (!arguments.json && !request.note.empty()) fmt::print("{}\n", request.note);
  return ExitStatus::success;
}

}  // namespace

CommandAction declare_tune(CLI::App& app, const std::vector<std::string>& config_arguments) {
  const auto arguments = std::make_shared<TuneArguments>();  // CLI11's options write to what the action reads
  PlanQuestion& question = arguments->question;
  question.top = 3;
  app.add_option("--model,model", question.model,
                 "a config (TOML), whose parallelism is ignored, a preset or a Hugging Face folder");
  app.add_option("--machine", question.machine,
                 "what is known of this machine: a name, or a file such as echelon bench writes; default: as for plan");
  app.add_option("--gpus", question.gpus, "ranks; default: one for each core");
  app.add_option("--global-batch-size", question.global_batch_size, "sequences per step, over all ranks");
  app.add_option("--seq-len", question.seq_len, "tokens per sequence");
  app.add_option("--top", question.top, "plans that are run")->capture_default_str();
  app.add_option("--steps", arguments->steps, "of each, after one that is not counted; the median counts")
      ->check(in_range(1, 1000))
      ->capture_default_str();
  app.add_option("--output", arguments->output, "write the plan that took least as a config for echelon train");
  app.add_option("--machine-output", arguments->machine_output, "write the machine as it is now known, for --machine");
  app.add_flag("--json", arguments->json, "the result as JSON");
  return [arguments, config_arguments] {
    arguments->question.settings = config_arguments;
    arguments->question.read_model = read_model_spec;
    arguments->question.this_machine = this_machine;
    // The layouts are run here, whatever the machine is.
    if (open_backend(DeviceChoice::automatic)->kind() == DeviceKind::cpu)
      arguments->question.device = DeviceChoice::automatic;
    return run_tuning(*arguments);
  };
}

}  // namespace echelon
