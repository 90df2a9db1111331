#include "verify/gradient/gradient_addends.h"

#include "blueprint/batch_layout.h"
#include "tensor/tokens.h"
#include "verify/context/token_places.h"

#include <algorithm>

namespace echelon {
namespace {

constexpr std::int64_t most_subsets = 64;  // one single-rank run each

class MaskedBatch final : public BatchSource {
 public:
  MaskedBatch(const Case& at, const TokenPlaces& places, BatchSubset subset)
      : at_(at), layout_(at.config()), places_(places), subset_(subset) {}
  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override {
    at_.batches.read(sequence, seq_len, tokens, targets);
    const TrainingConfig& training = at_.config().training;
    if (sequence / training.global_batch_size != places_.step() - 1) return;
    const std::int64_t of_batch = sequence % training.global_batch_size;
    const BatchPlace place = layout_.place_of(of_batch);
    const bool is_in = (subset_.microbatch < 0 || place.microbatch == subset_.microbatch) &&
                       (subset_.replica < 0 || place.replica == subset_.replica);
    for (std::int64_t i = 0; i < seq_len; ++i)
      if (!is_in || (subset_.part >= 0 && places_.part_of(of_batch * seq_len + i) != subset_.part))
        targets[i] = ignored_target;
  }

  void read_document_starts(std::int64_t sequence, std::int64_t seq_len, std::int32_t* starts) const override {
    at_.batches.read_document_starts(sequence, seq_len, starts);
  }
  [[nodiscard]] std::int64_t num_tokens(std::int64_t sequence, std::int64_t seq_len) const override {
    return at_.batches.num_tokens(sequence, seq_len);
  }

 private:
  const Case& at_;
  BatchLayout layout_;
  const TokenPlaces& places_;
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
  const TokenPlaces places(at.config(), at.batches, step);
  for (const BatchSubset& subset : list.subsets) {
    const MaskedBatch batches(at, places, subset);
    OneGradient watcher(tensor, step);
    run_layout({.blueprint = blueprint, .batches = batches, .num_steps = step}, watcher);
    const double num_targets = watcher.result().num_targets;
    for (double& number : watcher.gradient())
      number = num_targets > 0 ? number * num_targets / at.reference.step(step).num_targets : 0;
    list.num_targets.push_back(num_targets);
    list.mean_losses.push_back(num_targets > 0 ? watcher.result().loss : 0);
    list.gradients.push_back(std::move(watcher.gradient()));
  }
}

}  // namespace

std::vector<GradientAddends> gradient_addends(const Case& at, const std::string& tensor, std::int64_t step) {
  const BatchLayout layout(at.config());
  const int M = layout.num_microbatches(), R = layout.num_replicas(), P = at.mesh().degree(Axis::cp);
  std::vector<GradientAddends> lists;
  const auto add = [&](bool by_microbatch, bool by_replica, bool by_part) {
    GradientAddends list = {.has_microbatches = by_microbatch, .has_replicas = by_replica, .has_parts = by_part};
    for (int m = by_microbatch ? 0 : -1; m < (by_microbatch ? M : 0); ++m)
      for (int r = by_replica ? 0 : -1; r < (by_replica ? R : 0); ++r)
        for (int p = by_part ? 0 : -1; p < (by_part ? P : 0); ++p) list.subsets.push_back({m, r, p});
    if (std::ssize(list.subsets) <= most_subsets) lists.push_back(std::move(list));
  };
  add(M > 1, R > 1, P > 1);
  if (lists.empty()) {
    if (R > 1 && P > 1) add(false, true, true);
    if (M > 1) add(true, false, false);
    if (R > 1) add(false, true, false);
    if (P > 1) add(false, false, true);
  }
  if (lists.empty()) lists.push_back({.subsets = {BatchSubset{}}});
  for (GradientAddends& list : lists) compute(at, tensor, step, list);
  return lists;
}

}  // namespace echelon
