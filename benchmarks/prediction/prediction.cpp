// Predicted against measured: the steps of layouts that a seed draws, on this machine. At the same time the memory that
// was planned.
//
// A machine is not equally fast at all times, so it is measured in turns with the layouts, and of both the median of
// all rounds counts. usage: bench_prediction [--rounds 3] [--layouts 20] [--seed 1] [--seconds 1]
// benchmarks/prediction/processes takes its layouts from --list.
#include "base/clock.h"
#include "base/error.h"
#include "base/median.h"
#include "checkpoint/model_reader.h"
#include "data/indexed_dataset.h"
#include "machine/cpus.h"
#include "measure/measure_machine.h"
#include "predict/host/host_step.h"
#include "predict/host/operand_distances.h"
#include "predict/machine/host_time.h"
#include "prediction/draw.h"
#include "prediction/median_host.h"
#include "spec/config/config_reader.h"
#include "train/data/attention_shares.h"
#include "train/data/open_data.h"
#include "train/train.h"

#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>

namespace echelon {
namespace {

struct Options {
  std::string machine;   // empty: measured here
  std::string write_to;  // what was measured
  int num_rounds = 3;
  int num_layouts = 20;
  bool has_experts = false, has_context = false;
  int least_scarce = 10;  // of them with more ranks than cores
  std::uint64_t seed = 1;
  double seconds = 1;  // of steps of a layout in a round
  int only = -1;
  int num_ranks = 0;  // of each layout; 0: any number
  bool lists = false;
  bool explains = false;
};

struct Row {
  DrawnLayout layout;
  RunConfig config;
  HostLoad load = {};
  double predicted = 0, predicted_core_seconds = 0;          // of a step; of all cores, in it
  std::vector<double> step_seconds = {}, core_seconds = {};  // the measured ones; by round
  std::int64_t planned_bytes = 0, arena_bytes = 0;
  [[nodiscard]] double measured() const { return median(step_seconds); }
  [[nodiscard]] double error() const { return predicted / measured() - 1; }
};

/// A text without meaning, of documents of 2^5 to 2^10 tokens, or of the given length.
std::string write_tokens(const std::filesystem::path& folder, std::size_t length) {
  constexpr std::size_t num_tokens = 1 << 19;
  const std::string prefix = (folder / fmt::format("tokens-{}", length)).string();
  IndexedDatasetWriter writer(prefix, TokenType::u16);
  std::mt19937_64 numbers(7);
  std::vector<std::int32_t> tokens;
  for (std::size_t written = 0; written < num_tokens; written += tokens.size()) {
    tokens.resize(length > 0 ? length : (std::size_t{32} << numbers() % 6));
    for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(numbers() % 1000);
    writer.add_document(tokens);
  }
  writer.publish();
  return prefix;
}

/// Of all ranks in a step.
double flops_of(const Blueprint& blueprint) {
  double flops = 0;
  Coordinates coordinates{};
  const int num_stages = blueprint.mesh().degree(Axis::pp);
  for (int stage = 0; stage < num_stages; ++stage) {
    coordinates[static_cast<std::size_t>(Axis::pp)] = stage;
    const RankBlueprint rank = blueprint.rank(blueprint.mesh().rank_of(coordinates));
    for (const Action& action : rank.program(ProgramKind::training))
      for (const OpRecord& operation : rank.trace(ProgramKind::training).of(action).operations())
        flops += static_cast<double>(operation.flops);
  }
  return flops * blueprint.mesh().num_ranks() / num_stages;
}

/// None for a layout that contradicts itself, and for one whose step is very short or long on a laptop.
std::optional<Row> possible(const DrawnLayout& layout, const std::string& data) {
  constexpr double least_flops = 6e9, most_flops = 8e10;
  std::vector<std::string> arguments = layout.arguments;
  for (const std::string& more :
       {"--data.path=" + data, std::string("--checkpoint.enable=false"), std::string("--comm.backend=thread")})
    arguments.push_back(more);
  try {
    Row row = {.layout = layout,
               .config = read_run_config({.path = "", .arguments = arguments, .read_model = read_model_spec})};
    const Blueprint blueprint(row.config);
    const double flops = flops_of(blueprint);
    if (flops < least_flops || flops > most_flops) return std::nullopt;
    row.planned_bytes = blueprint.rank(0).arena_bytes();
    constexpr std::int64_t num_batches = 16;
    if (row.config.data.reset_attention_mask)
      row.load.attention_shares = attention_shares(row.config, open_documents(row.config), num_batches);
    return row;
  } catch (const Error&) {
    return std::nullopt;
  }
}

void predict(Row& row, const HostSpec& host) {
  const HostStep step = host_step(Blueprint(row.config), host, row.load);
  row.predicted = step.seconds;
  row.predicted_core_seconds = step.busy_core_seconds;
}

/// Of all threads of this process.
double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

/// Stops a run when its steps after the first ones have taken some time.
class StepClock final : public RunObserver {
 public:
  StepClock(Row& row, double seconds) : row_(row), seconds_(seconds) {}
  void reported(const StepReport& report) override {
    constexpr int num_warm = 2, least_steps = 4;
    if (report.step == num_warm) {
      start_ = now_seconds();
      busy_before_ = processor_seconds();
    } else if (report.step > num_warm) {
      row_.step_seconds.push_back(report.step_seconds);
      ++num_steps_;
      busy_ = processor_seconds() - busy_before_;
      if (num_steps_ >= least_steps && now_seconds() - start_ > seconds_) requests_.end = RunRequest::interrupt;
    }
    row_.arena_bytes = report.memory_peak_bytes;
  }
  [[nodiscard]] const RunRequests& requests() const { return requests_; }
  [[nodiscard]] double core_seconds() const { return busy_ / num_steps_; }

 private:
  Row& row_;
  double seconds_;
  RunRequests requests_;
  double start_ = 0, busy_before_ = 0, busy_ = 0;
  int num_steps_ = 0;
};

void measure(Row& row, double seconds) {
  StepClock clock(row, seconds);
  row.config.training.steps = 1000;
  (void)train(row.config, {.observer = &clock, .requests = &clock.requests()});
  row.core_seconds.push_back(clock.core_seconds());
}

struct TracedTable final : RunObserver {
  void traced(const TraceReport& trace) override { table = trace.table; }
  OperationTable table;
};

/// Where rank 0's time goes, by operation: as predicted on one core and on all together, and as measured.
void explain(Row& row, const HostSpec& host, const std::filesystem::path& folder) {
  const Blueprint blueprint(row.config);
  const RankBlueprint rank = blueprint.rank(0);
  HostTime time(host, blueprint.mesh().num_ranks());
  std::map<std::string, CoreSeconds> predicted;
  const auto more = distance_seconds(blueprint, rank, ProgramKind::training, time);
  for (const Action& action : rank.program(ProgramKind::training)) {
    std::size_t number = 0;
    for (const OpRecord& operation : rank.trace(ProgramKind::training).of(action).operations()) {
      CoreSeconds seconds = time.of(operation);
      seconds += more[static_cast<std::size_t>(action.id)].at(number++);
      const std::string name(name_of(operation.kind));
      predicted[name] += seconds;
      predicted[fmt::format("{} {}x{}x{} {}", name, operation.m, operation.n, operation.k, name_of(operation.dtype))] +=
          seconds;
    }
  }
  row.config.training.steps = 6;
  row.config.metrics.trace = "steps 4-6";
  row.config.output.dir = folder.string();
  TracedTable traced;
  (void)train(row.config, {.observer = &traced});
  const auto print = [&](const std::string& name, const OperationRow& measured) {
    const CoreSeconds seconds = predicted[name];
    fmt::print("{:<50} {:>6.0f} calls {:>9.3f} ms, predicted {:>9.3f} or {:>9.3f}\n", name, measured.calls,
               1e3 * measured.seconds, 1e3 * seconds.busy, 1e3 * seconds.shared);
  };
  for (const OperationRow& each : traced.table.rows) print(each.name, each);
  for (const auto& [name, shapes] : traced.table.by_shape)
    for (const OperationRow& each : shapes)
      if (each.seconds > 0.01 * traced.table.step_seconds) print(name + " " + each.name, each);
  fmt::print("step {:.3f} ms, unnamed {:.3f} ms, predicted {:.3f} ms\n", 1e3 * traced.table.step_seconds,
             1e3 * traced.table.unnamed_seconds, 1e3 * row.predicted);
}

/// Of layouts with context parallelism, every other one has documents.
LayoutKind kind_of_next(const Options& options, std::size_t num_rows) {
  if (options.has_context) return num_rows % 2 == 0 ? LayoutKind::context : LayoutKind::documents;
  return options.has_experts ? LayoutKind::experts : LayoutKind::dense;
}

std::vector<Row> draw(const Options& options, const std::filesystem::path& folder) {
  const std::string whole = write_tokens(folder, 1 << 16), documents = write_tokens(folder, 0);
  std::mt19937_64 numbers(options.seed);
  std::vector<Row> rows;
  int num_scarce = 0;
  while (std::ssize(rows) < options.num_layouts) {
    const LayoutKind kind = kind_of_next(options, rows.size());
    const DrawnLayout layout = draw_layout(numbers, kind);
    if (options.num_ranks != 0 && layout.num_ranks != options.num_ranks) continue;
    const bool is_scarce = layout.num_ranks > num_usable_cores();
    const std::int64_t num_others = std::ssize(rows) - num_scarce;
    const bool is_wanted =
        options.num_ranks != 0 ||
        (is_scarce ? num_scarce < options.least_scarce : num_others < options.num_layouts - options.least_scarce);
    if (!is_wanted) continue;
    const auto row = possible(layout, kind == LayoutKind::documents ? documents : whole);
    if (!row) continue;
    num_scarce += is_scarce ? 1 : 0;
    rows.push_back(*row);
  }
  return rows;
}

void print(const std::vector<Row>& rows, const Options& options) {
  fmt::print(
      "| layout (microbatches x sequences x tokens) | predicted ms | measured ms | error | all cores busy, predicted "
      "and measured ms | memory of rank 0, "
      "planned and allocated |\n|---|---|---|---|---|---|\n");
  std::array<std::vector<double>, 3> errors;  // with at most as many ranks as cores, with more, of all
  for (const Row& row : rows) {
    fmt::print("| {} | {:.1f} | {:.1f} | {:+.1f} % | {:.1f} {:.1f} | {} {} |\n", row.layout.name, 1e3 * row.predicted,
               1e3 * row.measured(), 100 * row.error(), 1e3 * row.predicted_core_seconds,
               1e3 * median(row.core_seconds), row.planned_bytes, row.arena_bytes);
    errors[row.layout.num_ranks > num_usable_cores() ? 1 : 0].push_back(std::abs(row.error()));
    errors[2].push_back(std::abs(row.error()));
  }
  const auto mean = [](const std::vector<double>& of) {
    return 100 * std::accumulate(of.begin(), of.end(), 0.0) / static_cast<double>(std::max<std::size_t>(1, of.size()));
  };
  fmt::print(
      "\nmean error {:.1f} %, largest {:.1f} %, {} layouts, seed {}, {} rounds; {:.1f} % with at most as many ranks as "
      "cores, {:.1f} % with more\n",
      mean(errors[2]), 100 * *std::max_element(errors[2].begin(), errors[2].end()), rows.size(), options.seed,
      options.num_rounds, mean(errors[0]), mean(errors[1]));
}

/// Of each layout a line: its name and its keys, with tabs between them.
void list(const std::vector<Row>& rows) {
  for (const Row& row : rows) fmt::print("{}\t{}\n", row.layout.name, fmt::join(row.layout.arguments, "\t"));
}

HostSpec measure_in_turns(std::vector<Row>& rows, const Options& options) {
  std::vector<HostSpec> hosts;
  if (!options.machine.empty()) hosts = {read_host(options.machine)};
  for (int round = 0; round < options.num_rounds; ++round) {
    if (options.machine.empty()) hosts.push_back(measure_machine({.seconds = 0.05, .num_rounds = 1}));
    for (Row& row : rows) measure(row, options.seconds);
  }
  return median_host(hosts);
}

void predict_and_measure(const Options& options) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("echelon-prediction-{}", getpid());
  std::filesystem::create_directories(folder);
  std::vector<Row> rows = draw(options, folder);
  if (options.only >= 0) rows = {rows.at(static_cast<std::size_t>(options.only))};
  if (options.lists) {
    list(rows);
  } else if (options.explains) {
    const HostSpec host =
        options.machine.empty() ? measure_machine({.seconds = 0.05, .num_rounds = 3}) : read_host(options.machine);
    for (Row& row : rows) {
      predict(row, host);
      fmt::print("{}\n", row.layout.name);
      explain(row, host, folder);
    }
  } else {
    const HostSpec host = measure_in_turns(rows, options);
    for (Row& row : rows) predict(row, host);
    print(rows, options);
    if (!options.write_to.empty()) std::ofstream(options.write_to) << to_toml(host);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace echelon

int main(int argc, char** argv) {
  echelon::Options options;
  CLI::App app("predicted against measured steps of drawn layouts, on this machine");
  app.add_option(
      "machine", options.machine,
      "what echelon bench --output has written; without it the machine is measured, in turns with the layouts");
  app.add_option("--output", options.write_to, "the machine as it was measured, as a file");
  app.add_option("--rounds", options.num_rounds, "over all layouts")->check(CLI::Range(1, 100));
  app.add_option("--layouts", options.num_layouts, "how many");
  app.add_option("--scarce", options.least_scarce, "of them with more ranks than cores");
  app.add_option("--seed", options.seed, "of the draw");
  app.add_option("--seconds", options.seconds, "of steps of each, in each round");
  app.add_option("--only", options.only, "one of them");
  app.add_option("--ranks", options.num_ranks, "of each layout, which --scarce then leaves alone");
  app.add_flag("--experts", options.has_experts, "of mixtures of experts");
  app.add_flag("--context", options.has_context, "with context parallelism, every other one with documents");
  app.add_flag("--list", options.lists, "print the layouts with their keys, and measure nothing");
  app.add_flag("--explain", options.explains, "by operation, out of a trace of rank 0");
  CLI11_PARSE(app, argc, argv);
  try {
    echelon::predict_and_measure(options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_prediction: {}\n", error.what());
    return 1;
  }
}
