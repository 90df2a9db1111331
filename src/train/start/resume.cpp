#include "train/start/resume.h"

#include "base/error.h"
#include "checkpoint/base_digest.h"
#include "checkpoint/model_reader.h"
#include "checkpoint/state/saved_config.h"
#include "checkpoint/state/state_names.h"
#include "checkpoint/state/step_folders.h"
#include "files/file.h"
#include "spec/config/config_changes.h"
#include "train/data/data_fingerprint.h"
#include "train/save/state_saver.h"
#include "train/start/initial_weights.h"
#include "train/start/load_choice.h"

#include <algorithm>
#include <ranges>

namespace echelon {
namespace {

/// A checkpoint that cannot be read, where an older one may be used instead.
class PassedOver : public Error {
 public:
  using Error::Error;
};

std::optional<Digest> base_of(const RunConfig& config) {
  const std::string& folder = config.checkpoint.initial_load_path;
  if (!config.lora.exists()) return std::nullopt;
  if (folder.empty()) return digest_of_drawn_base(config.training.seed);
  require_initial_folder(config);
  return digest_of_base(folder);
}

std::string of_all(const std::vector<KeyChange>& changes) {
  std::string text;
  for (const KeyChange& change : changes) text += (text.empty() ? "" : "; ") + to_text(change);
  return text;
}

std::int64_t closest_step(const std::vector<std::int64_t>& steps, std::int64_t wanted) {
  return *std::ranges::min_element(steps, {}, [&](std::int64_t step) { return std::abs(step - wanted); });
}

/// checkpoint.load may name the folder of all steps, or that of the run.
void require_step_folder(const std::filesystem::path& folder) {
  if (is_checkpoint(folder)) return;
  std::string hint;
  for (const std::filesystem::path& steps_in : {folder, folder / "checkpoint"})
    if (const std::vector<SavedStep> saved = saved_steps(steps_in); !saved.empty() && hint.empty())
      hint = fmt::format(" (use {})", step_folder(steps_in, saved.back().step).string());
  throw Error(fmt::format("checkpoint.load = '{}' has no manifest, so it is not a complete checkpoint{}",
                          folder.string(), hint));
}

}  // namespace

Resume::Resume(const RunConfig& config, const DataFingerprint& data,
               const std::function<void(const std::string&)>& warn)
    : config_(config), data_(data), base_(base_of(config)) {
  const std::string& load = config.checkpoint.load;
  const std::filesystem::path base = checkpoint_folder(config);
  const auto& [asked_step, other_run] = load_choice(config);
  if (!asked_step && !other_run && !config.checkpoint.enable) return;
  if (config.checkpoint.enable)
    for (const std::filesystem::path& folder : foreign_step_folders(base))
      throw Error(fmt::format(
          "{} is {}, so a save would mix with what is in it; use another output.dir, or move it away", folder.string(),
          kind_of(folder) == NameKind::other ? "a link" : "not a checkpoint (no manifest)"));
  const std::vector<SavedStep> saved = saved_steps(base);
  std::vector<std::int64_t> steps;
  for (const SavedStep& one : saved) steps.push_back(one.step);
  std::ranges::sort(steps);
  if (load == "none") {
    require(steps.empty(),
            "checkpoint.load = 'none', but {} has checkpoints up to step {} (use another output.dir, or auto)",
            base.string(), steps.empty() ? 0 : steps.back());
    return;
  }
  if (asked_step) {
    require(!steps.empty(), "checkpoint.load = '{}', but {} has no checkpoint (use auto)", load, base.string());
    require(std::ranges::binary_search(steps, *asked_step),
            "checkpoint.load = '{}', but {} has no checkpoint of that step (use {})", load, base.string(),
            closest_step(steps, *asked_step));
    add(step_folder(base, *asked_step));
    return;
  }
  require(!other_run || is_folder(*other_run),
          "checkpoint.load = '{}' is not auto, none, latest, a step or a step's folder (use {})", load,
          closest_name(load, load_words));
  if (other_run && steps.empty()) {
    require_step_folder(*other_run);
    add(*other_run);
    return;
  }
  if (other_run)
    warn(fmt::format("checkpoint.load = '{}' is not read: the run resumes from {}, which has its own checkpoints", load,
                     base.string()));
  is_strict_ = load != "latest";
  may_pass_over_ = true;
  for (const SavedStep& one : saved | std::views::reverse) {
    try {
      add(step_folder(base, one.step));
    } catch (const PassedOver& error) {
      warn(passing_over(one.step, error.what()));
      damaged_.push_back(one.step);
    } catch (const Error&) {
      // Only the newest one decides whether the run resumes; older ones are for when it turns out to be damaged.
      if (candidates_.empty()) throw;
    }
  }
  require(!candidates_.empty() || steps.empty(), "no checkpoint in {} can be read (use another output.dir)",
          base.string());
}

void Resume::add(const std::filesystem::path& folder) {
  std::shared_ptr<const StateReader> reader;
  try {
    reader = std::make_shared<StateReader>(folder);
  } catch (const Error& error) {
    if (may_pass_over_) throw PassedOver(error.what());
    throw;
  }
  const Manifest& manifest = reader->manifest();
  std::vector<KeyChange> changes = config_changes(config_of(manifest, folder), config_);
  const auto with = [&](KeyEffect effect) {
    std::vector<KeyChange> found;
    std::ranges::copy_if(changes, std::back_inserter(found),
                         [&](const auto& change) { return change.effect == effect; });
    return found;
  };
  require(with(KeyEffect::model).empty(),
          "{} has another model or other moments: {} (use another output.dir, or the old values)", folder.string(),
          of_all(with(KeyEffect::model)));
  require(manifest.base == base_,
          "{} has adapters of another base than that of {} (use that base, or another output.dir)", folder.string(),
          config_.checkpoint.initial_load_path.empty()
              ? fmt::format("training.seed = {}", config_.training.seed)
              : fmt::format("checkpoint.initial_load_path = '{}'", config_.checkpoint.initial_load_path));
  const std::vector<KeyChange> of_data = with(KeyEffect::data);
  std::erase_if(changes, [](const KeyChange& change) { return change.effect == KeyEffect::none; });
  const bool refuses_values = is_strict_ && !changes.empty();
  const std::string afresh =
      fmt::format("{}--checkpoint.exclude_from_loading=dataloader", refuses_values ? "--checkpoint.load=latest " : "");
  const bool takes_data = !config_.checkpoint.exclude_from_loading.dataloader;
  if (takes_data) require_same_data(*reader, of_data, afresh);
  if (takes_data) require_same_tokenizer(*reader, afresh);
  require(!refuses_values,
          "{} is of a run with other values: {} (use --checkpoint.load=latest to continue with the new ones, another "
          "output.dir, or the old values)",
          folder.string(), of_all(changes));
  ResumeCandidate& added = candidates_.emplace_back(ResumeCandidate{std::move(reader), {}});
  for (const KeyChange& change : changes) added.changes.push_back(to_text(change));
}

void Resume::require_same_data(const StateReader& reader, const std::vector<KeyChange>& of_data,
                               const std::string& afresh) const {
  const DataFingerprint& was = reader.manifest().scalars.data;
  const bool has_other_windows = std::ranges::find(of_data, "training.seq_len", &KeyChange::key) != of_data.end();
  if (was == data_ && !has_other_windows) return;
  DataFingerprint repacked = was;
  repacked.packing = data_.packing;
  const bool has_same_files = repacked == data_;
  throw Error(fmt::format(
      "{} was made with other data{} (use that, or {} to start with the first sequence)", reader.folder().string(),
      has_same_files && !of_data.empty()
          ? ": " + of_all(of_data)
          : fmt::format(" than data.path = '{}': it was {}, it is {}", config_.data.path, to_text(was), to_text(data_)),
      afresh));
}

void Resume::require_same_tokenizer(const StateReader& reader, const std::string& afresh) const {
  const Manifest& manifest = reader.manifest();
  const std::string& own = config_.checkpoint.tokenizer;
  const auto copy = std::ranges::find(manifest.copies, checkpoint_tokenizer_name, &Manifest::Copy::name);
  if (own.empty() || copy == manifest.copies.end()) return;
  require(
      digest_of(read_text(own)) == copy->content,
      "checkpoint.tokenizer = '{}' is another tokenizer than that of {} (use its {}, or {} with data of the new one)",
      own, reader.folder().string(), checkpoint_tokenizer_name, afresh);
}

RunScalars Resume::scalars_of(const ResumeCandidate& candidate) const {
  const LoadExclusions& excluded = config_.checkpoint.exclude_from_loading;
  RunScalars scalars = candidate.scalars();
  if (excluded.optimizer) scalars.skipped_steps = scalars.step;  // the optimizer counts none of them
  if (excluded.lr_scheduler) scalars.first_lr_step = scalars.step;
  if (excluded.dataloader) scalars.sequences = 0;
  scalars.data = data_;
  scalars.seq_len = config_.training.seq_len;
  return scalars;
}

std::string passing_over(std::int64_t step, const std::string& why) {
  return fmt::format("passing over step {}: {}", step, why);
}

bool Resume::is_finished() const {
  return !candidates_.empty() && candidates_.front().scalars().step >= config_.training.steps;
}

}  // namespace echelon
