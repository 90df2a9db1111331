#include "verify/gradient_addends.h"

#include "blueprint/batch_layout.h"
#include "tensor/tokens.h"

#include <algorithm>

namespace echelon {
namespace {

constexpr std::int64_t most_subsets = 64;  // one single-rank run each

class MaskedBatch final : public BatchSource {
 public:
  MaskedBatch(const Case& at, std::int64_t step, BatchSubset subset)
      : at_(at), layout_(at.config()), step_(step), subset_(subset) {}
  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override {
    at_.batches.read(sequence, seq_len, tokens, targets);
    const TrainingConfig& training = at_.config().training;
    if (sequence / training.global_batch_size != step_ - 1) return;
    const BatchPlace place = layout_.place_of(sequence % training.global_batch_size);
    const bool is_in = (subset_.microbatch < 0 || place.microbatch == subset_.microbatch) &&
                       (subset_.replica < 0 || place.replica == subset_.replica);
    if (!is_in) std::fill(targets, targets + seq_len, ignored_target);
  }

  void read_document_starts(std::int64_t sequence, std::int64_t seq_len, std::int32_t* starts) const override {
    at_.batches.read_document_starts(sequence, seq_len, starts);
  }

 private:
  const Case& at_;
  BatchLayout layout_;
  std::int64_t step_;
  BatchSubset subset_;
};

class OneGradient final : public RunObserver {
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
  [[nodiscard]] Values& gradient() { return gradient_; }
  [[nodiscard]] const StepResult& result() const { return result_; }

 private:
  const std::string& tensor_;
  std::int64_t step_;
  Values gradient_;
  StepResult result_;
};

void compute(const Case& at, const std::string& tensor, std::int64_t step, GradientAddends& list) {
  const Blueprint blueprint(one_rank(at.config()));
  for (const BatchSubset& subset : list.subsets) {
    const MaskedBatch batches(at, step, subset);
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

std::vector<GradientAddends> gradient_addends(const Case& at, const std::string& tensor, std::int64_t step) {
  const BatchLayout layout(at.config());
  const int M = layout.num_microbatches(), R = layout.num_replicas();
  std::vector<GradientAddends> lists;
  if (M > 1 && R > 1 && M * R <= most_subsets) {
    GradientAddends& both = lists.emplace_back(GradientAddends{.has_microbatches = true, .has_replicas = true});
    for (int m = 0; m < M; ++m)
      for (int r = 0; r < R; ++r) both.subsets.push_back({m, r});
  } else {
    if (M > 1 && M <= most_subsets) {
      GradientAddends& by_microbatch = lists.emplace_back(GradientAddends{.has_microbatches = true});
      for (int m = 0; m < M; ++m) by_microbatch.subsets.push_back({.microbatch = m});
    }
    if (R > 1 && R <= most_subsets) {
      GradientAddends& by_replica = lists.emplace_back(GradientAddends{.has_replicas = true});
      for (int r = 0; r < R; ++r) by_replica.subsets.push_back({.replica = r});
    }
  }
  if (lists.empty()) lists.push_back({.subsets = {BatchSubset{}}});
  for (GradientAddends& list : lists) compute(at, tensor, step, list);
  return lists;
}

}  // namespace echelon
