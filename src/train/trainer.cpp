#include "train/trainer.h"

#include "base/error.h"
#include "engine/gather_timeline.h"
#include "engine/layout_run.h"
#include "engine/lr_schedule.h"
#include "files/file.h"
#include "report/system_memory.h"
#include "report/trace_file.h"
#include "spec/config/model_flops.h"
#include "spec/machine/probe_errors.h"
#include "train/moe_report.h"
#include "train/validation.h"

#include <cmath>

namespace echelon {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Trainer::Trainer(const RunConfig& config, const TrainerContext& context)
    : config_(config),
      model_flops_per_token_(model_flops_per_token(config)),
      attention_flops_per_token_(attention_flops_per_token(config.model, config.training.seq_len)),
      context_(context),
      scalars_(context.start),
      scaler_(config),
      traced_(parse_traced_steps(config.metrics.trace)) {
  scaler_.resume(scalars_.loss_scale, scalars_.steps_since_scale_changed, scalars_.skipped_steps);
}

TrainResult Trainer::run() {
  context_.observer.starts(context_.rank);
  if (scalars_.step >= config_.training.steps && context_.validation != nullptr)
    result_.ended_by = evaluate(scalars_.step, true);  // all that was left to do
  for (std::int64_t step = scalars_.step + 1; step <= config_.training.steps && !ends_run(result_.ended_by); ++step) {
    const StepResult result = make_step(step);
    const bool is_last = step == config_.training.steps;
    if (!is_last) result_.ended_by = result.request;
    const bool ends_trace = context_.recorder != nullptr && !context_.recorder->steps().empty() &&
                            (ends_run(result.request) || step == traced_.last);
    if (ends_trace) write_trace();
    if (result.num_saved == context_.rank.mesh.shape().num_ranks()) context_.saver->all_have_saved();
    save(is_last || ends_run(result.request)  ? SaveReason::last
         : result.request == RunRequest::save ? SaveReason::request
                                              : SaveReason::interval);
    saves_done_ = saves_asked_;
    const bool evaluates = context_.validation != nullptr && !ends_run(result_.ended_by) &&
                           (is_last || is_due(config_.training.eval_interval, step));
    if (!evaluates) continue;
    result_.ended_by = evaluate(step, !ends_run(result.request));
    if (ends_run(result_.ended_by)) save(SaveReason::last);
  }
  if (context_.saver != nullptr && !ends_run(result_.ended_by)) context_.saver->write_model(scalars_.step);
  if (context_.saver != nullptr) result_.checkpoint = context_.saver->checkpoint();
  if (context_.saver != nullptr) result_.model_folder = context_.saver->model();
  context_.observer.ends(context_.rank);
  return result_;
}

void Trainer::ended_step(const StepResult& result) {
  scaler_.ended_step(result);
  if (!result.is_skipped) remember_routers();
  ++scalars_.step;
  scalars_.sequences += config_.training.global_batch_size;
  scalars_.skipped_steps = scaler_.num_skipped();
  scalars_.loss_scale = scaler_.scale();
  scalars_.steps_since_scale_changed = scaler_.num_finite();
}

void Trainer::remember_routers() {
  const Step& step = context_.rank.run.step();
  const RouterSums columns = {config_.model.mixture.num_experts};
  scalars_.routers.bias = step.router_bias();
  scalars_.routers.counts.clear();
  for (std::size_t i = 0; i < step.router_sums().size(); ++i)
    if (static_cast<std::int64_t>(i) % columns.num_columns() < columns.num_experts)
      scalars_.routers.counts.push_back(static_cast<std::int64_t>(step.router_sums()[i]));
}

std::string Trainer::layer_with_nan() const {
  const std::vector<double>& sums = context_.rank.run.step().router_sums();
  const RouterSums columns = {config_.model.mixture.num_experts};
  std::int64_t row = 0;
  for (std::int64_t layer = 0; !sums.empty() && layer < config_.model.num_hidden_layers; ++layer) {
    if (!config_.model.mixture.is_in(layer)) continue;
    if (sums[static_cast<std::size_t>(row++ * columns.num_columns() + columns.num_nan())] > 0)
      return fmt::format("; the router of model.layers.{} is the first one with NaN", layer);
  }
  return "";
}

void Trainer::require_finite(std::int64_t step, const StepResult& result) const {
  if (std::isfinite(result.loss) && std::isfinite(result.grad_norm)) return;
  const std::string what = fmt::format("step {}: the loss is {} and the gradient norm {}{}", step, result.loss,
                                       result.grad_norm, layer_with_nan());
  if (step == 1)
    throw Failure(fmt::format(
        "{} before any update, so optimizer.lr is not the cause: check the initial weights and training.dtype", what));
  throw Failure(fmt::format("{}: the run diverged; a lower optimizer.lr = {} may help", what, config_.optimizer.lr));
}

StepResult Trainer::make_step(std::int64_t step) {
  const auto begin = std::chrono::steady_clock::now();
  faults_before_ = process_memory().page_faults;
  sent_before_ = context_.rank.mesh.sent_bytes();
  const StepResult result = run_step(step);
  if (!result.is_skipped) require_finite(step, result);
  result_.last_step = report_of(step, result, seconds_since(begin));
  ended_step(result);
  context_.observer.ended_step(context_.rank, step, result);
  if (context_.rank.mesh.rank() == 0) report_step();
  return result;
}

void Trainer::report_step() {
  context_.observer.reported(result_.last_step);
  if (doubts_peak_ || !result_.last_step.mfu) return;
  const auto error = mfu_error(least_flops_, 1e14 * result_.last_step.tflops / *result_.last_step.mfu);
  doubts_peak_ = error.has_value();
  if (error) context_.observer.warned(*error);
}

StepResult Trainer::run_step(std::int64_t step) {
  if (is_traced(step)) context_.recorder->begin_step(step);
  takes_snapshot_ = context_.saver != nullptr && context_.saver->needs_snapshot();
  const StepResult result = context_.rank.run.step().run(
      takes_snapshot_ ? ProgramKind::training_with_snapshot : ProgramKind::training, input_of(step));
  if (is_traced(step)) {
    const AttentionWork& work = context_.rank.run.step().attention_work();
    const bool is_known = config_.data.reset_attention_mask && work.planned_pairs > 0;
    context_.recorder->end_step(is_known ? static_cast<double>(work.pairs) / static_cast<double>(work.planned_pairs)
                                         : 1);
  }
  return result;
}

void Trainer::write_trace() {
  const std::filesystem::path folder = std::filesystem::path(config_.output.dir) / "trace";
  const std::string name = fmt::format("rank{}", context_.rank.mesh.rank());
  const Program& program = context_.rank.run.blueprint().program(ProgramKind::training);
  const OperationTable table =
      operation_table(context_.recorder->steps(), program, context_.host->all_cores * context_.host->rank_share);
  make_folder(folder);
  write_text(folder / (name + "_trace.json"), to_chrome_json(context_.recorder->steps(), program) + "\n");
  write_text(folder / (name + "_operations.json"), to_json(table) + "\n");
  const StepTrace& last = context_.recorder->steps().back();
  const TraceReport report = {
      folder, table, last.step,
      gather_timeline(context_.host_mesh, context_.blueprint, last, context_.host->num_hosts <= 1)};
  context_.recorder->clear();
  if (context_.rank.mesh.rank() != 0) return;
  context_.observer.traced(report);
  for (const std::string& error : probe_errors(table)) context_.observer.warned(error);
}

void Trainer::save(SaveReason reason) {
  if (context_.saver != nullptr) context_.saver->ended_step(scalars_, reason, !is_traced(scalars_.step + 1));
}

RunRequest Trainer::asked() {
  if (context_.requests == nullptr) return RunRequest::none;
  saves_asked_ = context_.requests->num_saves;
  const RunRequest end = context_.requests->end;
  return end == RunRequest::none && saves_asked_ > saves_done_ ? RunRequest::save : end;
}

StepInput Trainer::input_of(std::int64_t step) {
  StepInput input = training_input(config_, context_.training, step, scaler_);
  input.first_sequence = scalars_.sequences;
  input.adamw.lr = learning_rate(config_, step, scalars_.first_lr_step);
  input.has_next = step < config_.training.steps;
  input.request = asked();
  input.has_saved = context_.saver != nullptr && context_.saver->has_saved();
  return input;
}

StepReport Trainer::report_of(std::int64_t step, const StepResult& result, double seconds) {
  StepReport report;
  report.step = step;
  report.loss = result.loss;
  report.grad_norm = result.grad_norm;
  report.loss_scale = scaler_.scale();
  report.is_skipped = result.is_skipped;
  report.lr = learning_rate(config_, step, scalars_.first_lr_step);
  report.tokens = config_.training.global_batch_size * config_.training.seq_len;
  report.epoch = static_cast<double>(scalars_.sequences + config_.training.global_batch_size) /
                 static_cast<double>(context_.training.windows_per_epoch(config_.training.seq_len));
  report.step_seconds = seconds;
  report.takes_snapshot = takes_snapshot_;
  if (context_.saver != nullptr) report.snapshot_wait_seconds = context_.saver->take_waited_seconds();
  const PairShares shares = context_.rank.run.step().pair_shares();
  set_rates(report, model_flops_per_token_ - (1 - shares.of_whole) * attention_flops_per_token_,
            context_.host
                ? (context_.host->all_cores * context_.host->num_hosts).peak_flops(name_of(config_.training.dtype))
                : std::nullopt);
  least_flops_ = 1e12 * report.tflops - report.tokens_per_second * shares.of_whole / 2 * attention_flops_per_token_;
  report.memory_peak_bytes = context_.rank.run.blueprint().arena_bytes();
  report.memory_total_bytes = context_.device_memory_bytes;
  const ProcessMemory process = process_memory();
  report.process_peak_bytes = process.peak_bytes;
  report.page_faults = process.page_faults - faults_before_;
  report.world_size = context_.rank.mesh.shape().num_ranks();
  report.cp_imbalance = shares.of_cp_ranks;
  report.data_imbalance = shares.of_replicas;
  const AttentionWork& work = context_.rank.run.step().attention_work();
  if (config_.data.reset_attention_mask) report.pairs = PartOfPlan{work.pairs, work.planned_pairs};
  if (context_.rank.run.blueprint().part().options.skips_unseen_keys)
    report.cp_bytes = PartOfPlan{work.sent_bytes, work.planned_sent_bytes};
  report.moe = moe_report(context_.rank.run.step(), config_);
  for (const auto& [group, bytes] : context_.rank.mesh.sent_bytes())
    if (bytes > sent_before_[group]) report.comm_bytes[name_of(group)] += bytes - sent_before_[group];
  return report;
}

RunRequest Trainer::evaluate(std::int64_t step, bool may_end) {
  const auto begin = std::chrono::steady_clock::now();
  const MeanLoss mean =
      validation_loss(context_.rank.run.step(), *context_.validation, config_, config_.training.eval_batches,
                      [&] { return may_end ? asked() : RunRequest::none; });
  if (ends_run(mean.request)) return mean.request;
  result_.validation_loss = mean.loss;
  if (context_.rank.mesh.rank() == 0)
    context_.observer.validated({step, mean.loss, mean.num_targets, seconds_since(begin), config_.moe.force_balance});
  return RunRequest::none;
}

}  // namespace echelon
