// echelon eval: the loss of a saved model on prepared text.
#include "checkpoint/model_config.h"
#include "cli/verb.h"
#include "engine/train.h"
#include "spec/config_reader.h"

#include <CLI/CLI.hpp>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

struct EvalArguments {
  std::string config, model, data;
  bool json = false;
};

ExitStatus run_evaluation(const EvalArguments& arguments, std::vector<std::string> config_arguments) {
  if (!arguments.model.empty()) {
    config_arguments.push_back("--model.path=" + arguments.model);
    config_arguments.push_back("--checkpoint.initial_load_path=" + arguments.model);
  }
  if (!arguments.data.empty()) config_arguments.push_back("--data.validation_path=" + arguments.data);
  const RunConfig config =
      read_run_config({.path = arguments.config, .arguments = config_arguments, .read_model = read_model_spec});
  const EvaluationResult result = evaluate(config);
  if (!placement_of(config).is_first_process()) return ExitStatus::success;
  if (arguments.json) {
    const nlohmann::ordered_json json = {{"validation_loss", result.loss},
                                         {"validation_perplexity", std::exp(result.loss)},
                                         {"validation_tokens", result.num_targets},
                                         {"validation_unigram_entropy", result.unigram_entropy}};
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("loss {:.5f} nats per token, perplexity {:.2f}, over {} tokens; unigram entropy of the text {:.5f}\n",
               result.loss, std::exp(result.loss), result.num_targets, result.unigram_entropy);
  }
  return ExitStatus::success;
}

}  // namespace

VerbAction declare_eval(CLI::App& app, const std::vector<std::string>& config_arguments) {
  const auto arguments = std::make_shared<EvalArguments>();  // CLI11's options write to what the action reads
  app.add_option("--model", arguments->model,
                 "a Hugging Face folder: model.path and checkpoint.initial_load_path at once");
  app.add_option("--data", arguments->data, "prefix of .bin and .idx: data.validation_path");
  app.add_option("config", arguments->config, "a TOML file, for its layout and sizes");
  app.add_flag("--json", arguments->json, "the result as JSON");
  return [arguments, config_arguments] { return run_evaluation(*arguments, config_arguments); };
}

}  // namespace echelon
