// Where a run starts: from nothing, or from one of its checkpoints.
#pragma once

#include "checkpoint/state/state_reader.h"
#include "engine/rank_run.h"
#include "spec/config/config_changes.h"
#include "spec/config/run_config.h"
#include "train/agreed_failure.h"

#include <functional>
#include <memory>

namespace echelon {

/// A checkpoint from which the run may resume.
struct ResumeCandidate {
  std::shared_ptr<const StateReader> reader;
  std::vector<std::string> changes;  // "optimizer.lr: was 0.001, is 0.0005"

  [[nodiscard]] const RunScalars& scalars() const { return reader->manifest().scalars; }
};

/// Decides by checkpoint.load and what the run's folder has. Every process of a run decides the same.
class Resume {
 public:
  /// Throws Error if the run may not resume from what it finds: another model, other data, other values under `auto`,
  /// an unknown step; and if the folder has step folders that are no checkpoints. `warn` gets a sentence for each
  /// damaged checkpoint that is passed over.
  Resume(const RunConfig& config, const DataFingerprint& data, const std::function<void(const std::string&)>& warn);

  /// Newest first; empty: the run starts from nothing.
  [[nodiscard]] const std::vector<ResumeCandidate>& candidates() const { return candidates_; }
  /// Whether another one is tried if one turns out to be damaged.
  [[nodiscard]] bool may_pass_over() const { return may_pass_over_; }
  /// Steps whose checkpoints were passed over.
  [[nodiscard]] const std::vector<std::int64_t>& damaged() const { return damaged_; }
  /// The scalars with which the run resumes from a candidate: without what checkpoint.exclude_from_loading names.
  [[nodiscard]] RunScalars scalars_of(const ResumeCandidate& candidate) const;
  /// The run has made all its steps.
  [[nodiscard]] bool is_finished() const;
  [[nodiscard]] const DataFingerprint& data() const { return data_; }
  /// Of the model that a run with adapters trains them on.
  [[nodiscard]] const std::optional<Digest>& base() const { return base_; }

 private:
  void add(const std::filesystem::path& folder);
  /// `of_data`: the keys of data that changed. `afresh`: the options that start with the first sequence.
  void require_same_data(const StateReader& reader, const std::vector<KeyChange>& of_data,
                         const std::string& afresh) const;
  void require_same_tokenizer(const StateReader& reader, const std::string& afresh) const;

  const RunConfig& config_;
  DataFingerprint data_;
  std::optional<Digest> base_;
  std::vector<ResumeCandidate> candidates_;
  std::vector<std::int64_t> damaged_;
  bool may_pass_over_ = false, is_strict_ = false;
};

/// The warning that a checkpoint is damaged.
[[nodiscard]] std::string passing_over(std::int64_t step, const std::string& why);

}  // namespace echelon
