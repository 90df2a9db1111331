// The reference that a layout is compared with: one rank's loss, gradient norm, gradients and weights of each step.
#pragma once

#include "engine/layout_run.h"
#include "engine/tensor_collection.h"
#include "verify/router_values.h"

#include <deque>
#include <map>
#include <string>
#include <vector>

namespace echelon {

struct ReferenceStep {
  double loss = 0, grad_norm = 0, num_targets = 0;
  double gradient_floor = 0;  // the root mean square of all gradients
  TensorCollection gradients, weights;
  RouterValues routers;
};

/// The same model and global batches on one rank, one sequence at a time.
[[nodiscard]] RunConfig one_rank(RunConfig config);

class Reference final : public RunObserver {
 public:
  /// Starts at step 0, which has only initial weights.
  [[nodiscard]] const ReferenceStep& step(std::int64_t step) const { return steps_[static_cast<std::size_t>(step)]; }
  [[nodiscard]] std::int64_t num_steps() const { return static_cast<std::int64_t>(steps_.size()) - 1; }
  [[nodiscard]] const std::vector<double>& gradient(std::int64_t step, const std::string& tensor) const;
  [[nodiscard]] const std::vector<double>& weight(std::int64_t step, const std::string& tensor) const;
  /// Names in the order of the forward pass, and the index of a name.
  [[nodiscard]] const std::vector<std::string>& tensors() const { return tensors_; }
  /// Of them the weights of routers.
  [[nodiscard]] const std::vector<std::string>& routers() const { return routers_; }
  [[nodiscard]] int position(const std::string& tensor) const { return positions_.at(tensor); }

  void starts(const RankView& rank) override;
  void has_gradients(const RankView& rank, std::int64_t step, double factor) override;
  void ended_step(const RankView& rank, std::int64_t step, const StepResult& result) override;

 private:
  std::deque<ReferenceStep> steps_;
  std::vector<std::string> tensors_, routers_;
  std::map<std::string, int> positions_;
};

/// Runs `config` on one rank.
void run_reference(const RunConfig& config, const BatchSource& batches, std::int64_t num_steps, Reference& reference);

}  // namespace echelon
