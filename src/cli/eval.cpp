// echelon eval: the loss of a saved model on prepared text.
#include "base/error.h"
#include "base/text/counted.h"
#include "base/text/tell.h"
#include "checkpoint/model_reader.h"
#include "cli/command.h"
#include "spec/config/config_reader.h"
#include "train/evaluate.h"
#include "train/run_placement.h"

#include <CLI/CLI.hpp>

#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

struct EvalArguments {
  std::string config, model, data;
  bool json = false;
};

/// With a config: its eval_batches, as train evaluates. With only a model: the whole text.
std::int64_t most_batches(const EvalArguments& arguments, const std::vector<std::string>& settings,
                          const RunConfig& config) {
  const bool is_limited = !arguments.config.empty() || sets_key(settings, "training.eval_batches");
  return is_limited ? config.training.eval_batches : std::numeric_limits<std::int64_t>::max();
}

/// The model replaces the config's. Without a config, the model's own sequence length is used.
RunConfig config_of(const EvalArguments& arguments, std::vector<std::string> settings) {
  if (!arguments.data.empty()) settings.push_back("--data.validation_path=" + arguments.data);
  if (!arguments.model.empty()) {
    settings.push_back("--checkpoint.initial_load_path=" + arguments.model);
    if (arguments.config.empty() && !sets_key(settings, "training.seq_len"))
      settings.push_back(fmt::format("--training.seq_len={}", read_training_seq_len(arguments.model)));
  }
  return read_run_config(
      {.path = arguments.config, .arguments = settings, .read_model = read_model_spec, .model_path = arguments.model});
}

void print(const EvaluationResult& result, const RunConfig& config) {
  fmt::print("{}\n", result.device);
  fmt::print(
      "loss {:.5f} nats per token, perplexity {:.2f}, over {} in sequences of {}; unigram entropy of the text "
      "{:.5f}\n",
      result.loss, std::exp(result.loss), counted(result.num_targets, "token"), config.training.seq_len,
      result.unigram_entropy);
  if (config.moe.force_balance)
    fmt::print("tokens took experts in turn, whatever the routers said: moe.force_balance = true\n");
  if (result.num_targets < result.num_targets_of_text)
    fmt::print("the text has {} tokens: training.eval_batches = {} evaluates a part of it\n",
               result.num_targets_of_text, config.training.eval_batches);
}

ExitStatus run_evaluation(EvalArguments arguments, const std::vector<std::string>& settings) {
  std::error_code ignored;
  if (arguments.model.empty() && std::filesystem::is_directory(arguments.config, ignored))
    std::swap(arguments.model, arguments.config);
  require(!std::filesystem::is_directory(arguments.config, ignored),
          "eval '{}' --model={} are two models; give one, or a config (TOML) with --model", arguments.config,
          arguments.model);
  require(!arguments.config.empty() || !arguments.model.empty() || sets_key(settings, "checkpoint.initial_load_path"),
          "eval has no model: give its folder, such as out/model (checkpoint.initial_load_path)");
  const RunConfig config = config_of(arguments, settings);
  const EvaluationResult result = evaluate(config, most_batches(arguments, settings, config));
  if (!placement_of(config).is_first_process()) return ExitStatus::success;
  if (!result.note.empty()) tell("note: {}\n", result.note);
  const double of_run = capacity_factor_of(config),
               factor = of_run > 0 ? of_run : read_capacity_factor(config.checkpoint.initial_load_path);
  if (factor > 0) tell("note: {}\n", note_of_capacity(factor));
  if (arguments.json) {
    nlohmann::ordered_json json = {
        {"validation_loss", result.loss},          {"validation_perplexity", std::exp(result.loss)},
        {"validation_tokens", result.num_targets}, {"validation_unigram_entropy", result.unigram_entropy},
        {"seq_len", config.training.seq_len},      {"device", result.device}};
    if (config.moe.force_balance) json["force_balance"] = true;
    fmt::print("{}\n", json.dump());
  } else {
    print(result, config);
  }
  return ExitStatus::success;
}

}  // namespace

CommandAction declare_eval(CLI::App& app, const std::vector<std::string>& config_arguments) {
  const auto arguments = std::make_shared<EvalArguments>();  // CLI11's options write to what the action reads
  app.add_option("--model", arguments->model,
                 "a Hugging Face folder: model.path and checkpoint.initial_load_path at once");
  app.add_option("--data", arguments->data, "prefix of .bin and .idx: data.validation_path");
  app.add_option("model", arguments->config,
                 "a Hugging Face folder; or the config (TOML) of the run that made --model: its layout, data, sequence "
                 "length and eval_batches");
  app.add_flag("--json", arguments->json, "the result as JSON");
  return [arguments, config_arguments] { return run_evaluation(*arguments, config_arguments); };
}

}  // namespace echelon
