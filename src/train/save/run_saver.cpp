#include "train/save/run_saver.h"

#include "base/text/written_number.h"
#include "checkpoint/hf/adapter/adapter_names.h"
#include "checkpoint/state/step_folders.h"
#include "files/file.h"
#include "spec/groups.h"
#include "train/save/export_model.h"

namespace echelon {
namespace {

std::string with_rank(const SharedFailure& failure, const Mesh& mesh) {
  return mesh.shape().num_ranks() == 1 ? failure.sentence : fmt::format("rank {}: {}", failure.rank, failure.sentence);
}

}  // namespace

bool is_due(std::int64_t interval, std::int64_t step) { return interval > 0 && step % interval == 0; }

std::filesystem::path model_folder(const RunConfig& config) {
  return std::filesystem::path(config.output.dir) / (config.lora.exists() ? "adapter" : "model");
}

RunSaver::RunSaver(const Context& context, std::filesystem::path resumed_from, std::vector<std::int64_t> damaged)
    : context_(context), damaged_(std::move(damaged)), resumed_from_(std::move(resumed_from)) {}

std::string RunSaver::plan() {
  const SavePlan& files = context_.state.files();
  const RunConfig& config = context_.config;
  std::int64_t num_parameters = 0;
  for (const NamedShape& written :
       config.lora.exists() ? adapter_tensors(config.model, config.lora) : saved_parameters(config.model, config.lora))
    num_parameters += written.sizes.num_elements();
  const std::int64_t model_bytes = num_parameters * size_of(context_.run.model().part().options.dtype);
  const std::int64_t manifest_bytes = context_.state.most_manifest_bytes();
  require_readable(manifest_bytes);
  require_space(context_.config.output.dir, files.num_bytes() + manifest_bytes + model_bytes,
                "a checkpoint and the model have");
  if (resumed_from_.empty()) warn_of_full_disk(files.num_bytes() + manifest_bytes, model_bytes);
  constexpr double megabyte = 1e6;
  return fmt::format("checkpoint: {:.1f} MB, at most {:.1f} MB of a rank; model: {:.1f} MB",
                     static_cast<double>(files.num_bytes()) / megabyte,
                     static_cast<double>(files.most_bytes()) / megabyte, static_cast<double>(model_bytes) / megabyte);
}

/// An older checkpoint is removed only after a new one is complete.
void RunSaver::warn_of_full_disk(std::int64_t checkpoint_bytes, std::int64_t model_bytes) {
  const RunConfig& config = context_.config;
  const std::int64_t interval = config.checkpoint.interval, keep = config.checkpoint.keep_latest_k;
  std::int64_t most = interval > 0 ? (config.training.steps + interval - 1) / interval : 1;
  if (keep > 0) most = std::min(most, keep + 1);
  const std::int64_t needed = most * checkpoint_bytes + model_bytes;
  const std::optional<std::int64_t> free = free_bytes(config.output.dir);
  if (!free || *free >= needed) return;
  context_.observer.warned(
      fmt::format("the disk of {} has {} free, but {} checkpoints (checkpoint.interval = {}, keep_latest_k = {}) and "
                  "the model have {}: a later save will fail unless space is made",
                  config.output.dir, written_bytes(*free), most, interval, keep, written_bytes(needed)));
}

void RunSaver::ended_step(const RunScalars& scalars, SaveReason reason, bool may_continue) {
  const CheckpointConfig& keys = context_.config.checkpoint;
  if (saved_step_ == scalars.step) return;
  if (reason != SaveReason::interval || is_due(keys.interval, scalars.step)) save(scalars, reason, may_continue);
  if (!is_due(keys.export_interval, scalars.step)) return;
  const std::filesystem::path folder =
      step_folder(std::filesystem::path(context_.config.output.dir) / "export", scalars.step);
  const std::optional<SharedFailure> failure =
      export_model({folder, scalars.step, context_.state.base()}, context_.config, context_.run, context_.ops,
                   context_.mesh, context_.host);
  if (!tells()) return;
  if (failure)
    context_.observer.warned(fmt::format("the model of step {} could not be written: {}; training continues",
                                         scalars.step, with_rank(*failure, context_.mesh)));
  else
    context_.observer.saved(folder);
}

// The last checkpoint, and one that is asked for, waits for the one before and is waited for.
void RunSaver::save(const RunScalars& scalars, SaveReason reason, bool may_continue) {
  StateSaver& state = context_.state;
  if (state.needs_snapshot()) state.drop();  // of this step, which is now saved at once
  const bool waits =
      reason != SaveReason::interval || !may_continue || !context_.config.checkpoint.saves_asynchronously();
  if (state.is_being_published()) {  // a matter of milliseconds
    state.finish();
    saved(false);
  }
  if (!waits && state.is_under_way()) {
    if (++num_left_out_ == 1 && tells())
      context_.observer.warned(
          fmt::format("the checkpoint of step {} is left out, since that of step {} is still being written "
                      "(checkpoint.interval = {}); the end of the run counts further ones",
                      scalars.step, state.scalars().step, context_.config.checkpoint.interval));
    return;
  }
  if (!waits) return state.start(scalars);
  if (state.is_under_way()) {
    state.finish();
    saved(false);
  }
  (void)state.save(scalars);
  saved(reason == SaveReason::last);
}

void RunSaver::all_have_saved() {
  if (context_.state.advance()) saved(false);
}

void RunSaver::saved(bool is_last) {
  constexpr int most_failed = 3;
  const RunScalars& scalars = context_.state.scalars();
  const std::optional<SharedFailure>& failure = context_.state.failure();
  if (is_last && num_left_out_ > 1 && tells())
    context_.observer.warned(
        fmt::format("{} checkpoints in all were left out, each while another one was being written", num_left_out_));
  if (!failure) {
    failed_saves_ = 0;
    saved_step_ = scalars.step;
    checkpoint_ = step_folder(checkpoint_folder(context_.config), scalars.step);
    std::erase(damaged_, scalars.step);  // a later attempt's replaces it
    if (tells()) context_.observer.saved_state(checkpoint_, context_.state.seconds(), context_.state.has_waited());
    if (tells()) prune(scalars.step);
    return;
  }
  const auto sentence = [&](const std::string& cause) {
    const std::filesystem::path& last = checkpoint_.empty() ? resumed_from_ : checkpoint_;
    return fmt::format("step {} could not be saved: {}; {}", scalars.step, cause,
                       last.empty() ? "this run has saved no checkpoint yet"
                                    : fmt::format("the last checkpoint is {}", last.string()));
  };
  if (++failed_saves_ >= most_failed || is_last)
    throw_agreed(context_.host.comm(step_group), {sentence(failure->sentence), failure->rank, failure->status});
  if (tells()) context_.observer.warned(sentence(with_rank(*failure, context_.mesh)) + ", and training continues");
}

void RunSaver::prune(std::int64_t step) {
  tell_of_pruning();
  const CheckpointConfig& keys = context_.config.checkpoint;
  pruning_ = std::make_shared<StateWrite>([folder = checkpoint_folder(context_.config), step, damaged = damaged_,
                                           kept = KeptSteps{keys.keep_latest_k, keys.keep_every}](StateWrite&) {
    prune_steps(folder, step, kept, damaged);
  });
  const auto perform = [pruning = pruning_] { pruning->perform(); };
  context_.background != nullptr ? context_.background->add(perform) : perform();
}

/// On rank 0: whether the last pruning, if it has ended, has failed.
void RunSaver::tell_of_pruning() {
  if (pruning_ == nullptr || !pruning_->is_done()) return;
  try {
    std::exchange(pruning_, nullptr)->require_success();
  } catch (const Error& error) {
    context_.observer.warned(fmt::format("an old checkpoint could not be removed: {}", error.what()));
  }
}

void RunSaver::write_model(std::int64_t step) {
  const std::filesystem::path folder = model_folder(context_.config);
  if (auto failure = export_model({folder, step, context_.state.base()}, context_.config, context_.run, context_.ops,
                                  context_.mesh, context_.host)) {
    failure->sentence = fmt::format(
        "the model could not be written: {}{}", failure->sentence,
        checkpoint_.empty() ? "" : fmt::format("; the checkpoint {} has its weights", checkpoint_.string()));
    throw_agreed(context_.host.comm(step_group), *failure);
  }
  model_ = folder;
  if (!tells()) return;
  context_.observer.saved(folder);
  if (pruning_) (void)pruning_->wait_until(StateWrite::Clock::now() + std::chrono::minutes(1));
  tell_of_pruning();
}

}  // namespace echelon
