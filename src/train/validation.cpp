#include "train/validation.h"

#include "tensor/tokens.h"

#include <algorithm>

namespace echelon {
namespace {

/// A dataset that does not wrap around: after its last window all targets are masked.
class OneEpoch final : public BatchSource {
 public:
  explicit OneEpoch(const DatasetBatches& data) : data_(data) {}

  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override {
    if (sequence < data_.windows_per_epoch(seq_len)) return data_.read(sequence, seq_len, tokens, targets);
    std::fill_n(tokens, seq_len, 0);
    std::fill_n(targets, seq_len, ignored_target);
  }

  void read_document_starts(std::int64_t sequence, std::int64_t seq_len, std::int32_t* starts) const override {
    if (sequence < data_.windows_per_epoch(seq_len)) return data_.read_document_starts(sequence, seq_len, starts);
    std::fill_n(starts, seq_len, 0);
  }

  [[nodiscard]] std::int64_t num_tokens(std::int64_t sequence, std::int64_t seq_len) const override {
    return sequence < data_.windows_per_epoch(seq_len) ? data_.num_tokens(sequence, seq_len) : 0;
  }

 private:
  const DatasetBatches& data_;
};

}  // namespace

MeanLoss validation_loss(Step& step, const DatasetBatches& data, const RunConfig& config, std::int64_t most_batches,
                         const std::function<RunRequest()>& request) {
  const OneEpoch batches(data);
  const std::int64_t num_windows = data.windows_per_epoch(config.training.seq_len),
                     batch_size = config.training.global_batch_size;
  const std::int64_t num_batches = std::min(most_batches, (num_windows + batch_size - 1) / batch_size);
  double sum = 0, num_targets = 0;
  RunRequest ended_by = RunRequest::none;
  for (std::int64_t batch = 0; batch < num_batches; ++batch) {
    const StepResult result = step.run(ProgramKind::evaluation, {.batches = &batches,
                                                                 .first_sequence = batch * batch_size,
                                                                 .adamw = {},
                                                                 .request = request ? request() : RunRequest::none});
    sum += result.loss * result.num_targets;
    num_targets += result.num_targets;
    if (ends_run(result.request)) ended_by = result.request;
    if (ends_run(ended_by)) break;
  }
  return {num_targets > 0 ? sum / num_targets : 0.0, static_cast<std::int64_t>(num_targets), ended_by};
}

}  // namespace echelon
