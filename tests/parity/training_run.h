// Runs a small model for some steps under a layout, with ranks as threads or as they are given, and returns what can be compared with another layout.
#pragma once

#include "engine/layout_run.h"
#include "engine/tensor_collection.h"

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace echelon::testing {

/// Tokens and targets by a formula; the targets of a sequence are ignored at its begin, unevenly over sequences and hence over ranks, and of some sequences
/// all are.
class FormulaBatches : public BatchSource {
 public:
  FormulaBatches(std::int64_t vocab_size, bool masks) : vocab_size_(vocab_size), masks_(masks) {}
  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override {
    const auto token = [&](std::int64_t i) { return static_cast<std::int32_t>((sequence * 7 + i * i * 3 + (sequence * i) % 5) % vocab_size_); };
    for (std::int64_t i = 0; i < seq_len; ++i) {
      tokens[i] = token(i);
      targets[i] = masks_ && (i < sequence * 3 % seq_len || sequence % 5 == 3) ? ignored_target : token(i + 1);
    }
  }

 private:
  std::int64_t vocab_size_;
  bool masks_;
};

struct Trajectory {
  std::vector<double> losses, grad_norms;
  double validation_loss = 0;
  TensorCollection first_gradients, values;
};

/// What is not as in a plain run on threads.
struct RunOptions {
  Interpose interpose = {};
  std::function<void(const RankView& rank)> at_end = {};  // looks at a rank after its last step and an evaluation
  RankRunner run_ranks = {};
  std::optional<Schedule> schedule = {};  // in place of the config's
};

/// With ranks as processes, each process gets what its rank knows: its slices, and on rank 0 the losses.
[[nodiscard]] std::unique_ptr<Trajectory> run_training(const RunConfig& config, const RunOptions& options = {});

/// max|a - b| / max(max|b|, floor) over all tensors, and the name of the worst; names and counts must agree.
struct Difference {
  double error = 0;
  std::string name;
};
[[nodiscard]] Difference worst_difference(const TensorCollection& a, const TensorCollection& b, double floor);

/// Losses and norms to `scalar_tolerance`, first gradients and weights to `tensor_tolerance`. `lr`: the floor of a weight's size.
void expect_equal(const Trajectory& actual, const Trajectory& expected, double scalar_tolerance, double tensor_tolerance, double lr);

/// Operations and collectives that complete late, with poison where their results will be: a wait that is missing anywhere shows in the numbers.
[[nodiscard]] std::unique_ptr<RankInterposer> delayed(Ops& ops, Mesh& mesh);

}  // namespace echelon::testing
