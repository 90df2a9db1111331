#include "train/trainer.h"

#include "base/error.h"
#include "checkpoint/step_folders.h"
#include "engine/gather_timeline.h"
#include "engine/layout_run.h"
#include "engine/lr_schedule.h"
#include "report/system_memory.h"
#include "report/trace_file.h"
#include "spec/groups.h"
#include "train/validation.h"

#include <array>
#include <cmath>
#include <fstream>

namespace echelon {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

bool divides(std::int64_t interval, std::int64_t step) { return interval > 0 && step % interval == 0; }

std::filesystem::path checkpoint_folder(const RunConfig& config) {
  return std::filesystem::path(config.output.dir) / config.checkpoint.folder;
}

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
  context_.observer.starts(context_.rank);
  for (std::int64_t step = 1; step <= config_.training.steps && !result_.was_stopped; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    faults_before_ = process_memory().page_faults;
    sent_before_ = context_.rank.mesh.sent_bytes();
    const StepResult result = run_step(step);
    if (!result.is_skipped) require_finite(step, result);
    result_.last_step = report_of(step, result, seconds_since(begin));
    scaler_.ended_step(result);
    context_.observer.ended_step(context_.rank, step, result);
    result_.was_stopped = result.stops;
    const bool ends_trace =
        context_.recorder != nullptr && !context_.recorder->steps().empty() && (result.stops || step == traced_.last);
    const bool is_last = step == config_.training.steps || result.stops;
    if (context_.rank.mesh.rank() == 0) context_.observer.reported(result_.last_step);
    if (ends_trace) write_trace();
    if (context_.validation != nullptr && (is_last || divides(config_.training.eval_interval, step))) evaluate(step);
    if (config_.checkpoint.enable && (is_last || divides(config_.checkpoint.interval, step))) save(step, is_last);
  }
  context_.observer.ends(context_.rank);
  return result_;
}

void Trainer::require_finite(std::int64_t step, const StepResult& result) const {
  if (std::isfinite(result.loss) && std::isfinite(result.grad_norm)) return;
  const std::string what =
      fmt::format("step {}: the loss is {} and the gradient norm {}", step, result.loss, result.grad_norm);
  if (step == 1)
    throw Failure(fmt::format(
        "{} before any update, so optimizer.lr is not the cause: check the initial weights and training.dtype", what));
  throw Failure(fmt::format("{}: the run diverged; a lower optimizer.lr = {} may help", what, config_.optimizer.lr));
}

StepResult Trainer::run_step(std::int64_t step) {
  const bool is_traced = context_.recorder != nullptr && traced_.contains(step);
  if (is_traced) context_.recorder->begin_step(step);
  const StepResult result = context_.rank.run.step().run(ProgramKind::training, input_of(step));
  if (is_traced) context_.recorder->end_step();
  return result;
}

void Trainer::write_trace() {
  const std::filesystem::path folder = std::filesystem::path(config_.output.dir) / "trace";
  const std::string name = fmt::format("rank{}", context_.rank.mesh.rank());
  const Program& program = context_.rank.run.blueprint().program(ProgramKind::training);
  const OperationTable table =
      operation_table(context_.recorder->steps(), program, context_.host->all_cores * context_.host->rank_share);
  write_text(folder / (name + "_trace.json"), to_chrome_json(context_.recorder->steps(), program));
  write_text(folder / (name + "_operations.json"), to_json(table));
  const StepTrace& last = context_.recorder->steps().back();
  const TraceReport report = {
      folder, table, last.step,
      gather_timeline(context_.host_mesh, context_.blueprint, last, context_.host->num_hosts <= 1)};
  context_.recorder->clear();
  if (context_.rank.mesh.rank() == 0) context_.observer.traced(report);
}

StepInput Trainer::input_of(std::int64_t step) const {
  StepInput input = training_input(config_, context_.training, step, scaler_);
  input.requests_stop = context_.stop_requested != nullptr && context_.stop_requested->load();
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
            context_.host
                ? (context_.host->all_cores * context_.host->num_hosts).peak_flops(name_of(config_.training.dtype))
                : std::nullopt);
  report.memory_peak_bytes = context_.rank.run.blueprint().arena_bytes();
  report.memory_total_bytes = context_.device_memory_bytes;
  const ProcessMemory process = process_memory();
  report.process_peak_bytes = process.peak_bytes;
  report.page_faults = process.page_faults - faults_before_;
  report.world_size = context_.rank.mesh.shape().num_ranks();
  for (const auto& [group, bytes] : context_.rank.mesh.sent_bytes())
    if (bytes > sent_before_[group]) report.comm_bytes[name_of(group)] += bytes - sent_before_[group];
  return report;
}

void Trainer::evaluate(std::int64_t step) {
  const auto begin = std::chrono::steady_clock::now();
  const MeanLoss mean =
      validation_loss(context_.rank.run.step(), *context_.validation, config_, config_.training.eval_batches);
  result_.validation_loss = mean.loss;
  if (context_.rank.mesh.rank() == 0)
    context_.observer.validated({step, mean.loss, mean.num_targets, seconds_since(begin)});
}

void Trainer::save(std::int64_t step, bool is_last) {
  constexpr int most_failed = 3;
  const std::filesystem::path folder = step_folder(checkpoint_folder(config_), step);
  const std::optional<SaveFailure> failure = write_model(folder);
  const bool is_first_rank = context_.rank.mesh.rank() == 0;
  if (!failure) {
    failed_saves_ = 0;
    result_.model_folder = folder;
    if (is_first_rank) context_.observer.saved(folder);
    if (is_first_rank) prune(step);
    return;
  }
  const std::string sentence = fmt::format(
      "step {} could not be saved: {}; {}", step, failure->sentence,
      result_.model_folder.empty() ? "no model is saved"
                                   : fmt::format("the last saved model is {}", result_.model_folder.string()));
  if (++failed_saves_ < most_failed && !is_last) {
    if (is_first_rank) context_.observer.warned(sentence + ", and training continues");
    return;
  }
  // The rank that failed has the cause, and its error ends the others here.
  if (!failure->is_own) context_.host_mesh.comm(step_group).barrier().wait();
  throw Failure(sentence);
}

void Trainer::prune(std::int64_t step) {
  try {
    prune_steps(checkpoint_folder(config_), step, config_.checkpoint.keep_latest_k);
  } catch (const Failure& error) {
    context_.observer.warned(fmt::format("an old model could not be removed: {}", error.what()));
  }
}

std::optional<Trainer::SaveFailure> Trainer::write_model(const std::filesystem::path& folder) {
  Comm& all = context_.host_mesh.comm(step_group);
  const auto failure_of = [&](const auto& part) -> std::optional<SaveFailure> {
    std::string own;
    try {
      part();
    } catch (const PeerAborted&) {
      throw;
    } catch (const Failure& error) {
      own = error.what();
    }
    const double has_failed = own.empty() ? 0 : 1;
    std::array<double, 2> failed = {has_failed, has_failed * all.rank()};  // how many, and the sum of their ranks
    all.all_reduce({failed.data(), DType::float64, {2}}, ReduceOp::sum).wait();
    if (failed[0] == 0) return std::nullopt;
    if (!own.empty()) return SaveFailure{own, true};
    return SaveFailure{failed[0] == 1 ? fmt::format("rank {} could not write its part", failed[1])
                                      : fmt::format("{} ranks could not write their parts", failed[0])};
  };
  const bool is_writer = all.rank() == 0;
  ModelWriter writer({.folder = folder,
                      .model = config_.model,
                      .dtype = context_.rank.run.model().part().options.dtype,
                      .tokenizer = config_.checkpoint.tokenizer,
                      .training_seq_len = config_.training.seq_len});
  std::optional<SaveFailure> failure = failure_of([&] {
    if (is_writer) writer.begin();
  });
  if (!failure)
    failure = failure_of([&] { context_.rank.run.model().save(writer, context_.rank.ops, context_.rank.mesh); });
  if (!failure)
    failure = failure_of([&] {
      if (is_writer) writer.finish();
    });
  return failure;
}

}  // namespace echelon
