#include "engine/verify/gradient_parts.h"

#include "tensor/tokens.h"

#include <algorithm>

namespace echelon {
namespace {

constexpr std::int64_t most_parts = 64;  // one run of one rank each

class PartOfBatch final : public BatchSource {
 public:
  PartOfBatch(const Case& at, std::int64_t step, BatchPart part) : at_(at), step_(step), part_(part) {}
  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override {
    at_.batches.read(sequence, seq_len, tokens, targets);
    const TrainingConfig& training = at_.config().training;
    if (sequence / training.global_batch_size != step_ - 1) return;
    // Sequence i of the global batch is of microbatch i / (DP B), data rank (i / B) mod DP (Step::load_batch).
    const std::int64_t i = sequence % training.global_batch_size, B = training.micro_batch_size,
                       DP = at_.config().data_parallel_degree();
    const bool is_in = (part_.microbatch < 0 || i / (DP * B) == part_.microbatch) &&
                       (part_.data_rank < 0 || i / B % DP == part_.data_rank);
    if (!is_in) std::fill(targets, targets + seq_len, ignored_target);
  }

  void read_document_starts(std::int64_t sequence, std::int64_t seq_len, std::int32_t* starts) const override {
    at_.batches.read_document_starts(sequence, seq_len, starts);
  }

 private:
  const Case& at_;
  std::int64_t step_;
  BatchPart part_;
};

class OneGradient final : public RunWatcher {
 public:
  OneGradient(const std::string& tensor, std::int64_t step) : tensor_(tensor), step_(step) {}
  void has_gradients(const RankView& rank, std::int64_t step, double factor) override {
    if (step != step_) return;
    visit_gradients(rank.run.model(), [&](const ParamPiece& piece) {
      if (piece.param.name == tensor_) gradient_ = downloaded(rank.ops, piece.numbers, factor);
    });
  }
  void ended_step(const RankView& /*rank*/, std::int64_t step, const StepResult& result) override {
    if (step == step_) result_ = result;
  }
  /// Of the mean over these targets.
  [[nodiscard]] Numbers& gradient() { return gradient_; }
  [[nodiscard]] const StepResult& result() const { return result_; }

 private:
  const std::string& tensor_;
  std::int64_t step_;
  Numbers gradient_;
  StepResult result_;
};

void compute(const Case& at, const std::string& tensor, std::int64_t step, GradientParts& list) {
  const Blueprint blueprint(one_rank(at.config()));
  for (const BatchPart& part : list.parts) {
    const PartOfBatch batches(at, step, part);
    OneGradient watcher(tensor, step);
    run_layout({.blueprint = blueprint, .batches = batches, .num_steps = step}, watcher);
    for (double& number : watcher.gradient())
      number *= watcher.result().num_targets / at.reference.step(step).num_targets;
    list.num_targets.push_back(watcher.result().num_targets);
    list.mean_losses.push_back(watcher.result().loss);
    list.gradients.push_back(std::move(watcher.gradient()));
  }
}

}  // namespace

std::vector<GradientParts> gradient_parts(const Case& at, const std::string& tensor, std::int64_t step) {
  const auto M = static_cast<int>(at.config().num_microbatches()),
             DP = static_cast<int>(at.config().data_parallel_degree());
  std::vector<GradientParts> lists;
  if (M > 1 && DP > 1 && M * DP <= most_parts) {
    GradientParts& both = lists.emplace_back(GradientParts{.has_microbatches = true, .has_data_ranks = true});
    for (int m = 0; m < M; ++m)
      for (int d = 0; d < DP; ++d) both.parts.push_back({m, d});
  } else {
    if (M > 1 && M <= most_parts) {
      GradientParts& by_microbatch = lists.emplace_back(GradientParts{.has_microbatches = true});
      for (int m = 0; m < M; ++m) by_microbatch.parts.push_back({.microbatch = m});
    }
    if (DP > 1 && DP <= most_parts) {
      GradientParts& by_rank = lists.emplace_back(GradientParts{.has_data_ranks = true});
      for (int d = 0; d < DP; ++d) by_rank.parts.push_back({.data_rank = d});
    }
  }
  if (lists.empty()) lists.push_back({.parts = {BatchPart{}}});
  for (GradientParts& list : lists) compute(at, tensor, step, list);
  return lists;
}

}  // namespace echelon
