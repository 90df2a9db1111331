// Predicted against measured: the steps of layouts that a seed draws, on this machine. At the same time the memory that was planned.
// usage: bench_prediction MACHINE.toml [--layouts 20] [--seed 1] [--seconds 2] [--predict-only]
#include "base/error.h"
#include "base/median.h"
#include "checkpoint/model_config.h"
#include "data/indexed_dataset.h"
#include "engine/train.h"
#include "predict/host_step.h"
#include "predict/host_time.h"
#include "prediction/draw.h"
#include "spec/config_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

namespace echelon {
namespace {

struct Options {
  std::string machine;
  int num_layouts = 20;
  int least_scarce = 10;  // of them with more ranks than cores
  std::uint64_t seed = 1;
  double seconds = 2;  // of steps of a layout
  int only = -1;
  bool predicts_only = false;
  bool explains = false;
};

struct Row {
  DrawnLayout layout;
  RunConfig config;
  double predicted = 0, measured = 0;
  std::int64_t planned_bytes = 0, arena_bytes = 0;
  [[nodiscard]] double error() const { return predicted / measured - 1; }
};

/// Tokens of a text without meaning.
std::string write_tokens(const std::filesystem::path& folder) {
  const std::string prefix = (folder / "tokens").string();
  IndexedDatasetWriter writer(prefix, TokenType::u16);
  std::mt19937_64 numbers(7);
  std::vector<std::int32_t> tokens(1 << 16);
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(numbers() % 1000);
  for (int document = 0; document < 8; ++document) writer.add_document(tokens);
  writer.publish();
  return prefix;
}

std::optional<Row> possible(const DrawnLayout& layout, const std::string& data, const HostSpec& host) {
  std::vector<std::string> arguments = layout.arguments;
  for (const std::string& more : {"--data.path=" + data, std::string("--checkpoint.enable=false"), std::string("--comm.backend=thread")})
    arguments.push_back(more);
  try {
    Row row = {layout, read_run_config({.path = "", .arguments = arguments, .read_model = read_model_spec}), 0, 0, 0, 0};
    const Blueprint blueprint(row.config);
    row.predicted = host_step(blueprint, host).seconds;
    row.planned_bytes = blueprint.rank(0).arena_bytes();
    return row;
  } catch (const Error&) {
    return std::nullopt;  // a layout that contradicts itself
  }
}

void measure(Row& row, double seconds) {
  row.config.training.steps = std::clamp<std::int64_t>(std::llround(seconds / row.predicted), 4, 40);
  std::vector<double> steps;
  TrainEvents events;
  events.on_step = [&](const StepReport& report) {
    if (report.step > 2) steps.push_back(report.step_seconds);
    row.arena_bytes = report.memory_peak_bytes;
  };
  (void)train(row.config, {.events = events});
  row.measured = median(steps);
}

/// Where rank 0's time goes, by operation: as predicted on one core and on all together, and as measured.
void explain(Row& row, const HostSpec& host, const std::filesystem::path& folder) {
  const Blueprint blueprint(row.config);
  const RankBlueprint rank = blueprint.rank(0);
  HostTime time(host, blueprint.mesh().num_ranks());
  std::map<std::string, CoreSeconds> predicted;
  for (const Action& action : rank.program(ProgramKind::training)) {
    for (const OpRecord& operation : rank.trace(ProgramKind::training).of(action).ops) {
      const CoreSeconds seconds = time.of(operation);
      const std::string name(name_of(operation.kind));
      predicted[name] += seconds;
      predicted[fmt::format("{} {}x{}x{} {}", name, operation.m, operation.n, operation.k, name_of(operation.dtype))] += seconds;
    }
  }
  row.config.training.steps = 6;
  row.config.metrics.trace = "steps 4-6";
  row.config.output.dir = folder.string();
  TrainEvents events;
  events.on_trace = [&](const TraceReport& trace) {
    const auto print = [&](const std::string& name, const OperationRow& measured) {
      const CoreSeconds seconds = predicted[name];
      fmt::print("{:<50} {:>6.0f} calls {:>9.3f} ms, predicted {:>9.3f} or {:>9.3f}\n", name, measured.calls, 1e3 * measured.seconds, 1e3 * seconds.busy,
                 1e3 * seconds.shared);
    };
    for (const OperationRow& each : trace.table.rows) print(each.name, each);
    for (const auto& [name, shapes] : trace.table.by_shape)
      for (const OperationRow& each : shapes)
        if (each.seconds > 0.01 * trace.table.step_seconds) print(name + " " + each.name, each);
    fmt::print("step {:.3f} ms, unnamed {:.3f} ms, predicted {:.3f} ms\n", 1e3 * trace.table.step_seconds, 1e3 * trace.table.unnamed_seconds,
               1e3 * row.predicted);
  };
  (void)train(row.config, {.events = events});
}

std::vector<Row> draw(const Options& options, const HostSpec& host, const std::string& data) {
  std::mt19937_64 numbers(options.seed);
  std::vector<Row> rows;
  int num_scarce = 0;
  while (std::ssize(rows) < options.num_layouts) {
    const DrawnLayout layout = draw_layout(numbers);
    const bool is_scarce = layout.num_ranks > host.num_cores;
    const bool is_wanted = is_scarce ? num_scarce < options.least_scarce : std::ssize(rows) - num_scarce < options.num_layouts - options.least_scarce;
    if (!is_wanted) continue;
    const auto row = possible(layout, data, host);
    if (!row || row->predicted < 0.03 || row->predicted > 0.5) continue;
    num_scarce += is_scarce ? 1 : 0;
    rows.push_back(*row);
  }
  return rows;
}

int predict_and_measure(const Options& options) {
  const HostSpec host = read_host(options.machine);
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / fmt::format("echelon-prediction-{}", getpid());
  std::filesystem::create_directories(folder);
  std::vector<Row> rows = draw(options, host, write_tokens(folder));
  fmt::print(
      "| layout (microbatches x sequences x tokens) | predicted ms | measured ms | error | memory of rank 0, planned and allocated |\n|---|---|---|---|---|\n");
  double sum = 0, worst = 0;
  for (int i = 0; i < std::ssize(rows); ++i) {
    if (options.only >= 0 && i != options.only) continue;
    Row& row = rows[static_cast<std::size_t>(i)];
    if (options.predicts_only) {
      fmt::print("{} {}: {:.1f}\n", row.layout.name, fmt::join(row.layout.arguments, " "), 1e3 * row.predicted);
      continue;
    }
    if (options.explains) {
      fmt::print("{}\n", row.layout.name);
      explain(row, host, folder);
      continue;
    }
    measure(row, options.seconds);
    fmt::print("| {} | {:.1f} | {:.1f} | {:+.1f} % | {} {} |\n", row.layout.name, 1e3 * row.predicted, 1e3 * row.measured, 100 * row.error(), row.planned_bytes,
               row.arena_bytes);
    std::fflush(stdout);
    sum += std::abs(row.error());
    worst = std::max(worst, std::abs(row.error()));
  }
  fmt::print("\nmean error {:.1f} %, largest {:.1f} %, {} layouts, seed {}\n", 100 * sum / static_cast<double>(rows.size()), 100 * worst, rows.size(),
             options.seed);
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace echelon

int main(int argc, char** argv) {
  echelon::Options options;
  CLI::App app("predicted against measured steps of drawn layouts, on this machine");
  app.add_option("machine", options.machine, "what echelon bench --output has written")->required();
  app.add_option("--layouts", options.num_layouts, "how many");
  app.add_option("--scarce", options.least_scarce, "of them with more ranks than cores");
  app.add_option("--seed", options.seed, "of the draw");
  app.add_option("--seconds", options.seconds, "of steps of each");
  app.add_option("--only", options.only, "one of them");
  app.add_flag("--predict-only", options.predicts_only, "nothing is run");
  app.add_flag("--explain", options.explains, "by operation, out of a trace of rank 0");
  CLI11_PARSE(app, argc, argv);
  try {
    return echelon::predict_and_measure(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_prediction: {}\n", error.what());
    return 1;
  }
}
