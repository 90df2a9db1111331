// echelon inspect: describes a model folder, a checkpoint, token files, a run's metrics.jsonl, or a config.
#include "checkpoint/hf/inspect.h"

#include "base/printable.h"
#include "checkpoint/model_reader.h"
#include "checkpoint/state/saved_config.h"
#include "cli/command.h"
#include "cli/inspect_config.h"
#include "cli/model_argument.h"
#include "data/indexed_dataset.h"
#include "report/metrics_history.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

namespace fs = std::filesystem;

struct InspectArguments {
  std::string path;
  bool json = false, verify = false;
};

struct ModelFolder {
  FolderVerdict verdict{};
  std::vector<ListedTensor> tensors;  // none if the files cannot be read, which the verdict says
  std::int64_t num_parameters = 0, num_bytes = 0;
};

ModelFolder read_model(const fs::path& folder) {
  require_model(folder);
  ModelFolder model;
  model.verdict = verdict_of(folder);
  try {
    model.tensors = list_tensors(folder);
  } catch (const Error& error) {
    if (model.verdict.missing.empty()) throw;
  }
  for (const ListedTensor& tensor : model.tensors) {
    std::int64_t size = 1;
    for (const std::int64_t dim : tensor.shape) size *= dim;
    model.num_parameters += size;
    model.num_bytes += tensor.num_bytes;
  }
  return model;
}

void print(const ModelFolder& model) {
  std::size_t width = 0;
  for (const ListedTensor& tensor : model.tensors) width = std::max(width, printable(tensor.name).size());
  for (const ListedTensor& tensor : model.tensors)
    fmt::print("{:<{}}  {:<4}  {}\n", printable(tensor.name), width, printable(tensor.format), to_string(tensor.shape));
  fmt::print("{}: {} tensors, {} parameters, {:.1f} MB\n", printable(model.verdict.model_type, 200),
             model.tensors.size(), model.num_parameters, static_cast<double>(model.num_bytes) / 1e6);
  fmt::print("{}\n", model.verdict.missing.empty() ? "it can be trained" : "it cannot be trained:");
  for (const auto* sentences : {&model.verdict.missing, &model.verdict.notes})
    for (const std::string& sentence : *sentences) fmt::print("  {}\n", printable(sentence));
}

nlohmann::ordered_json to_json(const ModelFolder& model) {
  auto tensors = nlohmann::ordered_json::array();
  for (const ListedTensor& tensor : model.tensors)
    tensors.push_back({{"name", tensor.name},
                       {"dtype", tensor.format},
                       {"shape", tensor.shape},
                       {"num_bytes", tensor.num_bytes},
                       {"file", tensor.file_name}});
  return {{"model_type", model.verdict.model_type}, {"num_parameters", model.num_parameters},
          {"num_bytes", model.num_bytes},           {"missing", model.verdict.missing},
          {"notes", model.verdict.notes},           {"tensors", tensors}};
}

struct Checkpoint {
  Manifest manifest;
  RunConfig config;
  bool is_verified = false;

  [[nodiscard]] std::int64_t num_bytes() const {
    std::int64_t sum = 0;
    for (const Manifest::File& file : manifest.files) sum += file.num_bytes;
    return sum;
  }
};

Checkpoint read_checkpoint(const fs::path& folder, bool verify) {
  const StateReader reader(folder);
  if (verify) reader.verify();
  return {.manifest = reader.manifest(), .config = config_of(reader.manifest(), folder), .is_verified = verify};
}

void print(const Checkpoint& checkpoint) {
  const auto& [manifest, config, is_verified] = checkpoint;
  const RunScalars& scalars = manifest.scalars;
  fmt::print("step {} of {}: {} of {} parameters, {} sequences of {} tokens read, {} steps skipped\n", scalars.step,
             config.training.steps, name_of(config.model.family), config.model.num_parameters(), scalars.sequences,
             scalars.seq_len, scalars.skipped_steps);
  if (scalars.loss_scale)
    fmt::print("loss scale {}, {} steps since it changed\n", *scalars.loss_scale, scalars.steps_since_scale_changed);
  for (const auto& [state, dtype] : manifest.states) fmt::print("{}: {}\n", printable(state), name_of(dtype));
  for (const LineageEntry& entry : manifest.lineage) {
    fmt::print("attempt {}: {}\n", entry.attempt,
               entry.from.empty() ? "started" : "resumed from " + printable(entry.from));
    for (const std::string& change : entry.changes) fmt::print("  {}\n", printable(change));
  }
  fmt::print("{} files, {:.1f} MB{}\n", manifest.files.size(), static_cast<double>(checkpoint.num_bytes()) / 1e6,
             is_verified ? ", equal to their digests" : "; --verify compares them with their digests");
}

nlohmann::ordered_json to_json(const Checkpoint& checkpoint) {
  const RunScalars& scalars = checkpoint.manifest.scalars;
  auto lineage = nlohmann::ordered_json::array();
  for (const LineageEntry& entry : checkpoint.manifest.lineage)
    lineage.push_back({{"attempt", entry.attempt}, {"from", entry.from}, {"changes", entry.changes}});
  nlohmann::ordered_json json = {{"step", scalars.step},
                                 {"skipped_steps", scalars.skipped_steps},
                                 {"sequences", scalars.sequences},
                                 {"seq_len", scalars.seq_len},
                                 {"attempt", checkpoint.manifest.attempt},
                                 {"num_files", checkpoint.manifest.files.size()},
                                 {"num_bytes", checkpoint.num_bytes()},
                                 {"lineage", lineage}};
  if (scalars.loss_scale) json["loss_scale"] = *scalars.loss_scale;
  for (const auto& [state, dtype] : checkpoint.manifest.states) json["states"][state] = name_of(dtype);
  if (checkpoint.is_verified) json["is_verified"] = true;
  return json;
}

void print(const IndexedDataset& dataset) {
  fmt::print("{}: {} tokens of type {}, {} sequences, {} documents\n", dataset.prefix(), dataset.num_tokens(),
             name_of(dataset.token_type()), dataset.num_sequences(), dataset.num_documents());
}

nlohmann::ordered_json to_json(const IndexedDataset& dataset) {
  return {{"token_type", name_of(dataset.token_type())},
          {"num_tokens", dataset.num_tokens()},
          {"num_sequences", dataset.num_sequences()},
          {"num_documents", dataset.num_documents()}};
}

/// As JSON, the lines themselves.
ExitStatus show(const MetricsHistory& history, bool json) {
  if (!json) fmt::print("{}", to_text(history));
  if (json)
    for (const MetricsHistory::Line& line : history.lines) fmt::print("{}\n", line.text);
  return ExitStatus::success;
}

ExitStatus show(const auto& found, bool json) {
  // In ASCII, since a terminal takes some characters above it as commands.
  json ? fmt::print("{}\n", to_json(found).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace))
       : print(found);
  return ExitStatus::success;
}

/// The verdict on a model that cannot be trained is printed, and is an error too, as `train` would say it.
ExitStatus show_model(const fs::path& folder, bool json) {
  const ModelFolder model = read_model(folder);
  show(model, json);
  std::fflush(stdout);
  if (!model.verdict.missing.empty()) throw Error(model.verdict.missing.front());
  return ExitStatus::success;
}

ExitStatus run_inspection(const InspectArguments& arguments, const std::vector<std::string>& config_arguments) {
  const bool is_config = arguments.path.ends_with(".toml") || is_preset(arguments.path) ||
                         (arguments.path.empty() && !config_arguments.empty());
  if (is_config) return inspect_config(arguments.path, config_arguments, arguments.json);
  require(
      !arguments.path.empty(),
      "inspect '': the path is empty; give a config, a model folder, a preset, the prefix of token files, or keys such "
      "as --model.preset=llama3-8b");
  require(config_arguments.empty(),
          "inspect '{}' is not a config, so {} does not apply; the name of a config ends in .toml", arguments.path,
          config_arguments.empty() ? "" : config_arguments.front());
  if (is_checkpoint(arguments.path)) return show(read_checkpoint(arguments.path, arguments.verify), arguments.json);
  require(!arguments.verify, "--verify: {} is not a checkpoint, so it has no digests", arguments.path);
  if (arguments.path.ends_with(".jsonl")) return show(read_metrics(arguments.path), arguments.json);
  if (fs::is_directory(arguments.path)) return show_model(arguments.path, arguments.json);
  const fs::path path = arguments.path;
  const bool is_file_name = path.extension() == ".idx" || path.extension() == ".bin";
  const std::string prefix =
      is_file_name && fs::exists(path) ? fs::path(path).replace_extension().string() : arguments.path;
  require(fs::exists(prefix + ".idx"), "inspect '{}': there is no such model folder, and no {}.idx", arguments.path,
          prefix);
  return show(IndexedDataset(prefix), arguments.json);
}

}  // namespace

CommandAction declare_inspect(CLI::App& app, const std::vector<std::string>& config_arguments) {
  const auto arguments = std::make_shared<InspectArguments>();  // CLI11's options write to what the action reads
  app.add_option(
      "model", arguments->path,
      "a config (TOML), a Hugging Face folder, a checkpoint, a preset, a run's metrics.jsonl, or the prefix of "
      "a .bin and an .idx; without one, the keys below make a config");
  app.add_flag("--json", arguments->json, "the same as JSON");
  app.add_flag("--verify", arguments->verify, "read all of a checkpoint and compare it with its digests");
  return [arguments, config_arguments] { return run_inspection(*arguments, config_arguments); };
}

}  // namespace echelon
