// echelon train: runs a config and reports the run on the terminal, in a log, or as JSON.
#include "train/train.h"
#include "train/run_placement.h"

#include "base/text/counted.h"
#include "base/text/printable.h"
#include "base/text/tell.h"
#include "checkpoint/model_reader.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/model_argument.h"
#include "cli/terminal.h"
#include "engine/run_device.h"
#include "pages/train_html.h"
#include "pages/train_prediction.h"
#include "report/metrics_file.h"
#include "report/progress.h"
#include "report/system_memory.h"
#include "spec/config/config_reader.h"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

namespace echelon {
namespace {

struct TrainArguments {
  std::string config, html;
  std::string model_note = {};  // of the folder of model.path, where no weights are read from one
  bool json = false;
  bool show_config = false;
};

/// Lines may quote what a checkpoint says.
std::string printable_lines(const std::string& text) {
  constexpr std::size_t most_bytes = 100'000;
  std::string out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) out += (out.empty() ? "" : "\n") + printable(line, most_bytes);
  return out;
}

/// Writes a run's reports: always metrics.jsonl, a page if requested, and on the program's output either the progress
/// or the same JSON.
class RunLog final : public RunObserver {
 public:
  RunLog(const RunConfig& config, const TrainArguments& arguments)
      : metrics_path_(config.output.dir + "/metrics.jsonl"),
        model_note_(arguments.model_note),
        json_(arguments.json),
        prediction_(predict_training(config)),
        progress_({.num_steps = config.training.steps,
                   .log_freq = config.metrics.log_freq,
                   .style = json_ ? ProgressStyle::log : progress_style()},
                  std::cout) {
    if (!arguments.html.empty()) html_.emplace(arguments.html, config);
  }

  void described(const std::string& line) override {
    const bool is_first = !metrics_;
    metrics_.emplace(metrics_path_);  // only after the run is known to be possible
    if (html_) html_->note(line);
    note(printable_lines(line));
    if (is_first && !model_note_.empty()) warned(model_note_);
    if (!is_first || !prediction_.save) return;
    if (const std::string seconds = seconds_text(*prediction_.save); !seconds.empty()) note("predicted: " + seconds);
  }
  void reported(const StepReport& measured) override {
    StepReport report = measured;
    if (html_) html_->set_device_memory(report.memory_total_bytes);
    if (report.memory_total_bytes == 0) report.memory_total_bytes = system_memory_bytes();
    report.predicted_step_seconds = prediction_.seconds_of_step(report.takes_snapshot);
    report.predicted_memory_bytes = prediction_.predicted_memory_bytes;
    append(to_json(report));
    steps_.push_back(report);
    if (html_) html_->add(report);
    json_ ? print_json(to_json(report)) : progress_.step(report);
  }
  void validated(const EvaluationReport& report) override {
    append(to_json(report));
    if (html_) html_->add(report);
    json_ ? print_json(to_json(report)) : progress_.note(evaluation_line(report));
  }
  void warned(const std::string& sentence) override {
    if (html_) html_->note(sentence);
    json_ ? tell("echelon: {}\n", printable(sentence)) : progress_.note("warning: " + printable(sentence));
  }
  void resumed(std::int64_t step, const std::filesystem::path& from) override {
    append(nlohmann::ordered_json{{"resumed_from", step}, {"checkpoint", from.string()}}.dump());
  }
  void saved(const std::filesystem::path& folder) override { note(fmt::format("saved {}", folder.string())); }
  void saved_state(const std::filesystem::path& folder, double seconds, bool has_waited) override {
    if (has_waited) save_seconds_.push_back(seconds);
    std::string predicted;
    if (has_waited && prediction_.save && prediction_.save->save_seconds)
      predicted = fmt::format(" (predicted {:.3g} s)", *prediction_.save->save_seconds);
    note(fmt::format("saved in {:.3g} s{}{}: {}", seconds, has_waited ? "" : " of training", predicted,
                     folder.string()));
  }
  void traced(const TraceReport& trace) override {
    if (html_) html_->add(trace);
    if (json_)
      return print_json(fmt::format(R"({{"trace": {}, "operations": {}}})",
                                    nlohmann::json(trace.folder.string()).dump(), to_json(trace.table)));
    progress_.note(to_text(trace.table) +
                   fmt::format("trace: {}/rank*_trace.json, for ui.perfetto.dev", trace.folder.string()));
  }

  /// Which kernels the device chose, and why.
  void chose(const std::string& choices) {
    if (!choices.empty() && metrics_) append(nlohmann::ordered_json{{"device_choices", choices}}.dump());
  }
  /// No information about the run exists earlier.
  [[nodiscard]] bool has_started() const { return metrics_.has_value(); }
  /// The prediction next to the measurements so far.
  [[nodiscard]] const TrainPrediction& compare() {
    set_measured(prediction_, steps_, save_seconds_);
    if (html_) html_->add(prediction_);
    return prediction_;
  }
  /// A page without a step replaces no earlier one.
  void write_html(const std::string& ending) {
    if (!html_) return;
    if (steps_.empty() && std::filesystem::exists(html_->path()))
      return note(fmt::format("report: {} stays as it is, since no step was made", html_->path()));
    html_->write(ending);
    note(fmt::format("report: {}", html_->path()));
  }

 private:
  void append(const std::string& json) {
    if (const std::string warning = metrics_->append(json); !warning.empty()) warned(warning);
  }
  void note(const std::string& line) {
    if (!json_) progress_.note(line);
  }
  static void print_json(const std::string& json) { std::cout << json << '\n' << std::flush; }

  std::string metrics_path_, model_note_;
  bool json_;
  TrainPrediction prediction_;
  Progress progress_;
  std::optional<MetricsFile> metrics_;
  std::vector<StepReport> steps_;
  std::vector<double> save_seconds_;
  std::optional<TrainHtml> html_;
};

void print_result(const TrainResult& result, const TrainPrediction& prediction) {
  const StepReport& last = result.last_step;
  if (result.was_finished || last.step == 0) {
    if (ends_run(result.ended_by)) fmt::print("stopped before the first step\n");
    if (!result.model_folder.empty()) fmt::print("model: {}\n", result.model_folder.string());
    return;
  }
  fmt::print("{} after step {}: training loss {:.4f}", ends_run(result.ended_by) ? "stopped" : "done", last.step,
             last.loss);
  if (result.validation_loss) fmt::print(", validation loss {:.4f}", *result.validation_loss);
  if (result.validation_unigram_entropy)
    fmt::print(", unigram entropy of the validation text {:.4f} nats per token", *result.validation_unigram_entropy);
  fmt::print("\n");
  if (!result.checkpoint.empty()) fmt::print("checkpoint: {}\n", result.checkpoint.string());
  if (!result.model_folder.empty()) fmt::print("model: {}\n", result.model_folder.string());
  if (!result.device_choices.empty()) fmt::print("{}\n", result.device_choices);
  fmt::print("{}", to_text(prediction));
}

void print_json(const TrainResult& result, const TrainPrediction& prediction) {
  nlohmann::ordered_json json = {
      {"steps", result.last_step.step}, {"loss", nullptr}, {"was_stopped", ends_run(result.ended_by)}};
  if (prediction.measured_step_seconds) json["loss"] = result.last_step.loss;  // of a step of this attempt
  if (result.validation_loss) json["validation_loss"] = *result.validation_loss;
  if (result.validation_unigram_entropy) json["validation_unigram_entropy"] = *result.validation_unigram_entropy;
  if (result.was_finished) json["was_finished"] = true;
  if (!result.checkpoint.empty()) json["checkpoint"] = result.checkpoint.string();
  if (!result.model_folder.empty()) json["model_folder"] = result.model_folder.string();
  if (!result.device_choices.empty()) json["device_choices"] = result.device_choices;
  add_to(json, prediction);
  fmt::print("{}\n", json.dump());
}

/// The run in the process that reports it. Its page is written even if the run fails.
TrainResult train_and_tell(const RunConfig& config, const TrainArguments& arguments, const RunRequests& requests) {
  RunLog log(config, arguments);
  try {
    return train(config, {.observer = &log, .requests = &requests, .tell = [&](const TrainResult& result) {
                            const TrainPrediction& prediction = log.compare();
                            log.chose(result.device_choices);
                            log.write_html(ends_run(result.ended_by)
                                               ? fmt::format("Interrupted after step {} of {}.", result.last_step.step,
                                                             config.training.steps)
                                               : fmt::format("All {} done.", counted(config.training.steps, "step")));
                            arguments.json ? print_json(result, prediction) : print_result(result, prediction);
                            std::fflush(stdout);
                          }});
  } catch (const Error& error) {
    if (log.has_started()) log.write_html(fmt::format("The run failed: {}", error.what()));
    throw;
  }
}

ExitStatus status_of(RunRequest end) {
  if (!ends_run(end)) return ExitStatus::success;
  return end == RunRequest::restart ? ExitStatus::restart : ExitStatus::interrupted;
}

ExitStatus run_training(TrainArguments arguments, const std::vector<std::string>& config_arguments) {
  end_on_requests();  // to read a pipe may take any time
  ConfigSource source = source_of_model(arguments.config, config_arguments);
  std::string model_path;
  source.read_model = [&](const std::string& folder) { return read_model_spec(model_path = folder); };
  if (!source.model_path.empty())  // a folder has the weights to start from
    source.arguments.insert(source.arguments.begin(), "--checkpoint.initial_load_path=" + source.model_path);
  RunConfig config = read_run_config(source);
  const RunRequests& requests = watch_for_requests();
  if (arguments.show_config) {
    fmt::print("{}", to_toml(config));
    return ExitStatus::success;
  }
  if (!model_path.empty() && config.checkpoint.initial_load_path.empty())
    arguments.model_note = note_of_model(model_path);
  config = with_nodes(with_device(config, open_backend(config.training.device)->kind()));
  require(!config.data.path.empty(),
          "data.path is missing: the prefix of the .bin and .idx files that echelon prepare makes");
  const bool tells = placement_of(config).is_first_process();
  const TrainResult result =
      tells ? train_and_tell(config, arguments, requests) : train(config, {.requests = &requests});
  return status_of(result.ended_by);
}

}  // namespace

CommandAction declare_train(CLI::App& app, const std::vector<std::string>& config_arguments) {
  const auto arguments = std::make_shared<TrainArguments>();  // CLI11's options write to what the action reads
  app.add_option("model", arguments->config, model_argument_help);
  app.add_option("--html", arguments->html,
                 "a page about the run, written at its end: one file, to be opened in a browser");
  app.add_flag("--json", arguments->json, "one JSON object per step, as in metrics.jsonl, and one for the run");
  app.add_flag("--show-config", arguments->show_config, "print the whole config as TOML and do nothing");
  return [arguments, config_arguments] { return run_training(*arguments, config_arguments); };
}

}  // namespace echelon
