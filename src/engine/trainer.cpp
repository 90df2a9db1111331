#include "engine/trainer.h"

#include "base/error.h"
#include "checkpoint/step_folders.h"
#include "engine/gather_timeline.h"
#include "engine/layout_run.h"
#include "engine/lr_schedule.h"
#include "engine/validation.h"
#include "report/system_memory.h"
#include "report/trace_file.h"
#include "spec/groups.h"

#include <cmath>
#include <fstream>

namespace echelon {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

bool divides(std::int64_t interval, std::int64_t step) { return interval > 0 && step % interval == 0; }

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  std::ofstream file(path, std::ios::binary);
  file << text << '\n' << std::flush;
  if (!file)
    throw Failure(
        fmt::format("'{}' could not be written; check the folder's permissions and the disk's space", path.string()));
}

}  // namespace

TrainResult Trainer::run() {
  for (std::int64_t step = 1; step <= config_.training.steps && !result_.was_stopped; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    faults_before_ = process_memory().page_faults;
    sent_before_ = parts_.mesh.sent_bytes();
    const StepResult result = run_step(step);
    if (!result.is_skipped && (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)))
      throw Failure(fmt::format(
          "step {}: the loss is {} and the gradient norm {}: the run diverged; a lower optimizer.lr = {} may help",
          step, result.loss, result.grad_norm, config_.optimizer.lr));
    result_.last_step = report_of(step, result, seconds_since(begin));
    scaler_.ended_step(result);
    result_.was_stopped = result.stops;
    const bool ends_trace =
        parts_.recorder != nullptr && !parts_.recorder->steps().empty() && (result.stops || step == traced_.last);
    const bool is_last = step == config_.training.steps || result.stops;
    if (parts_.mesh.rank() == 0 && options_.events.on_step) options_.events.on_step(result_.last_step);
    if (ends_trace) write_trace();
    if (parts_.validation != nullptr && (is_last || divides(config_.training.eval_interval, step))) evaluate(step);
    if (config_.checkpoint.enable && (is_last || divides(config_.checkpoint.interval, step))) save(step);
  }
  return result_;
}

StepResult Trainer::run_step(std::int64_t step) {
  const bool is_traced = parts_.recorder != nullptr && traced_.contains(step);
  if (is_traced) parts_.recorder->begin_step(step);
  const StepResult result = parts_.run.step().run(ProgramKind::training, input_of(step));
  if (is_traced) parts_.recorder->end_step();
  return result;
}

void Trainer::write_trace() {
  const std::filesystem::path folder = std::filesystem::path(config_.output.dir) / "trace";
  const std::string name = fmt::format("rank{}", parts_.mesh.rank());
  const Program& program = parts_.run.blueprint().program(ProgramKind::training);
  const OperationTable table =
      operation_table(parts_.recorder->steps(), program, parts_.host->all_cores * parts_.host->rank_share);
  write_text(folder / (name + "_trace.json"), to_chrome_json(parts_.recorder->steps(), program));
  write_text(folder / (name + "_operations.json"), to_json(table));
  const StepTrace& last = parts_.recorder->steps().back();
  const TraceReport report = {folder, table, last.step,
                              gather_timeline(parts_.host_mesh, parts_.blueprint, last, parts_.host->num_hosts <= 1)};
  parts_.recorder->clear();
  if (parts_.mesh.rank() == 0 && options_.events.on_trace) options_.events.on_trace(report);
}

StepInput Trainer::input_of(std::int64_t step) const {
  StepInput input = training_input(config_, parts_.training, step, scaler_);
  input.wants_stop = options_.stop_requested != nullptr && options_.stop_requested->load();
  return input;
}

StepReport Trainer::report_of(std::int64_t step, const StepResult& result, double seconds) {
  StepReport report;
  report.step = step;
  report.loss = result.loss;
  report.grad_norm = result.grad_norm;
  report.loss_scale = scaler_.scale();
  report.is_skipped = result.is_skipped;
  report.lr = learning_rate(config_, step);
  report.tokens = config_.training.global_batch_size * config_.training.seq_len;
  report.step_seconds = seconds;
  set_rates(report, model_flops_per_token(config_.model, config_.training.seq_len),
            parts_.host ? (parts_.host->all_cores * parts_.host->num_hosts).peak_flops(config_.training.dtype)
                        : std::nullopt);
  report.memory_peak_bytes = parts_.run.blueprint().arena_bytes();
  report.memory_total_bytes = parts_.device_memory_bytes;
  const ProcessMemory process = process_memory();
  report.process_peak_bytes = process.peak_bytes;
  report.page_faults = process.page_faults - faults_before_;
  report.world_size = parts_.mesh.shape().num_ranks();
  for (const auto& [group, bytes] : parts_.mesh.sent_bytes())
    if (bytes > sent_before_[group]) report.comm_bytes[name_of(group)] = bytes - sent_before_[group];
  return report;
}

void Trainer::evaluate(std::int64_t step) {
  const auto begin = std::chrono::steady_clock::now();
  const MeanLoss mean = validation_loss(parts_.run.step(), *parts_.validation, config_, config_.training.eval_batches);
  result_.validation_loss = mean.loss;
  if (parts_.mesh.rank() == 0 && options_.events.on_validation)
    options_.events.on_validation({step, mean.loss, mean.num_targets, seconds_since(begin)});
}

void Trainer::save(std::int64_t step) {
  const std::filesystem::path folder = std::filesystem::path(config_.output.dir) / config_.checkpoint.folder;
  const bool is_writer = parts_.mesh.rank() == 0;
  Comm& world = parts_.mesh.comm(world_group);
  ModelWriter writer({.folder = step_folder(folder, step),
                      .model = config_.model,
                      .dtype = parts_.run.model().part().options.dtype,
                      .tokenizer = config_.checkpoint.tokenizer});
  if (is_writer) writer.begin();
  world.barrier().wait();
  parts_.run.model().save(writer, parts_.ops, parts_.mesh);
  world.barrier().wait();
  result_.model_folder = step_folder(folder, step);
  if (!is_writer) return;
  writer.finish();
  prune_steps(folder, step, config_.checkpoint.keep_latest_k);
  if (options_.events.on_saved) options_.events.on_saved(result_.model_folder);
}

}  // namespace echelon
