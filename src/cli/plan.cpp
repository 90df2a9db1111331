// echelon plan: the best layouts of a model on a cluster.
#include "predict/plan.h"

#include "base/error.h"
#include "checkpoint/model_config.h"
#include "cli/verb.h"
#include "predict/plan_text.h"
#include "spec/config_reader.h"

#include <CLI/CLI.hpp>

#include <fstream>
#include <memory>

namespace echelon {
namespace {

struct PlanArguments {
  PlanQuestion question;
  std::string output;
  bool json = false;
};

void write_config(const Plan& plan, const std::string& path) {
  std::ofstream file(path);
  file << to_toml(plan.config);
  if (!file.flush()) throw Failure(fmt::format("--output={} cannot be written; check the folder and the space that is left", path));
}

ExitStatus run_plan(const PlanArguments& arguments) {
  const PlanRequest request = read_plan_request(arguments.question);
  const PlanResult result = find_plans(request);
  if (!arguments.output.empty() && !result.plans.empty()) write_config(result.plans.front(), arguments.output);
  fmt::print("{}", arguments.json ? to_json(result, request) : to_text(result, request));
  return result.plans.empty() ? ExitStatus::failure : ExitStatus::success;
}

}  // namespace

VerbAction declare_plan(CLI::App& app, const std::vector<std::string>& config_arguments) {
  const auto arguments = std::make_shared<PlanArguments>();  // CLI11's options write to what the action reads
  PlanQuestion& question = arguments->question;
  app.add_option("--model", question.model, "a preset, a Hugging Face folder, or a config file (its parallelism is left aside)");
  app.add_option("--machine", question.machine, "a machine by name, or its file");
  app.add_option("--gpus", question.gpus, "devices; default: all that the machine has");
  app.add_option("--global-batch-size", question.global_batch_size, "sequences per step, over all devices");
  app.add_option("--seq-len", question.seq_len, "tokens per sequence; default: the model's longest, 8192 at most");
  app.add_option("--objective", question.objective, "what is to be least: time | memory | cost")->capture_default_str();
  app.add_option("--top", question.top, "plans that are listed")->capture_default_str();
  app.add_option("--output", arguments->output, "write the best plan as a config for echelon train");
  app.add_flag("--json", arguments->json, "the outcome as JSON");
  return [arguments, config_arguments] {
    arguments->question.settings = config_arguments;
    arguments->question.read_model = read_model_spec;
    return run_plan(*arguments);
  };
}

}  // namespace echelon
