// echelon inspect: describes a model folder, a checkpoint, token files, a run's metrics.jsonl, or a config.
#include "checkpoint/hf/adapter/adapter_config.h"
#include "checkpoint/model_reader.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/inspect/inspect_adapter.h"
#include "cli/inspect/inspect_checkpoint.h"
#include "cli/inspect/inspect_config.h"
#include "cli/inspect/inspect_model.h"
#include "cli/inspect/inspect_tokens.h"
#include "cli/model_argument.h"
#include "report/metrics_history.h"

#include <CLI/CLI.hpp>

#include <memory>

namespace echelon {
namespace {

namespace fs = std::filesystem;

struct InspectArguments {
  std::string path;
  bool json = false, verify = false;
  std::int64_t sample = 0;
};

/// As JSON, the lines themselves.
ExitStatus inspect_metrics(const MetricsHistory& history, bool json) {
  if (!json) fmt::print("{}", to_text(history));
  if (json)
    for (const MetricsHistory::Line& line : history.lines) fmt::print("{}\n", line.text);
  return ExitStatus::success;
}

ExitStatus inspect_token_files(const InspectArguments& arguments) {
  const fs::path path = arguments.path;
  const bool is_file_name = path.extension() == ".idx" || path.extension() == ".bin";
  const std::string prefix =
      is_file_name && fs::exists(path) ? fs::path(path).replace_extension().string() : arguments.path;
  require(fs::exists(prefix + ".idx"), "inspect '{}': there is no such model folder, and no {}.idx{}", arguments.path,
          prefix, hint_for_preset(arguments.path));
  return arguments.sample > 0 ? inspect_sample(prefix, arguments.sample, arguments.json)
                              : inspect_tokens(prefix, arguments.json);
}

/// Of a folder of a corpus, the token files that --sample can have meant.
void require_no_sample(const InspectArguments& arguments) {
  const bool is_corpus = fs::exists(fs::path(arguments.path) / "train.idx");
  require(arguments.sample == 0, "--sample={}: '{}' is not the prefix of token files{}", arguments.sample,
          arguments.path, is_corpus ? "; did you mean " + (fs::path(arguments.path) / "train").string() + "?" : "");
}

ExitStatus run_inspection(const InspectArguments& arguments, const std::vector<std::string>& config_arguments) {
  const std::string& path = arguments.path;
  const bool is_config = path.ends_with(".toml") || is_preset(path) || (path.empty() && !config_arguments.empty());
  const bool is_metrics = path.ends_with(".jsonl");
  if (is_config || is_metrics || fs::is_directory(path)) require_no_sample(arguments);
  require(!is_config || !arguments.verify,
          "--verify: {} is a config, which has no digests; a run writes checkpoints, such as "
          "out/checkpoint/step-100",
          path.empty() ? "the keys" : path);
  if (is_config) return inspect_config(path, config_arguments, arguments.json);
  require(
      !path.empty(),
      "inspect '': the path is empty; give a config, a model folder, a preset, the prefix of token files, or keys such "
      "as --model.preset=llama3-8b");
  require(config_arguments.empty(),
          "inspect '{}' is not a config, so {} does not apply; the name of a config ends in .toml", path,
          config_arguments.empty() ? "" : config_arguments.front());
  if (is_checkpoint(path)) return inspect_checkpoint(path, arguments.verify, arguments.json);
  require(!arguments.verify || fs::exists(path),
          "inspect '{}' --verify: there is no such folder; a run writes checkpoints, such as out/checkpoint/step-100",
          path);
  const bool is_model_folder = fs::is_directory(path) && !is_adapter_folder(path);
  if (is_model_folder) return inspect_model(path, arguments.verify, arguments.json);
  require(!arguments.verify, "--verify: {} is not a checkpoint, so it has no digests", path);
  if (is_metrics) return inspect_metrics(read_metrics(path), arguments.json);
  if (is_adapter_folder(path)) return inspect_adapter(path, arguments.json);
  return inspect_token_files(arguments);
}

}  // namespace

CommandAction declare_inspect(CLI::App& app, const std::vector<std::string>& config_arguments) {
  const auto arguments = std::make_shared<InspectArguments>();  // CLI11's options write to what the action reads
  app.add_option(
      "model", arguments->path,
      "a config (TOML), a Hugging Face or PEFT folder, a checkpoint, a preset, a run's metrics.jsonl, or the prefix of "
      ".bin and .idx; without one, the keys below make a config");
  app.add_flag("--json", arguments->json, "the same as JSON");
  app.add_flag("--verify", arguments->verify, "read and check all values of a model or checkpoint");
  app.add_option("--sample", arguments->sample,
                 "documents of token files as text, what is trained in brackets or green")
      ->check(in_range(1, 1000));
  return [arguments, config_arguments] { return run_inspection(*arguments, config_arguments); };
}

}  // namespace echelon
