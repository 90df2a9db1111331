// Runs a small model for some steps under a layout, with ranks as threads or as they are given, and returns what can be compared with another layout.
#pragma once

#include "comm/thread/thread_world.h"
#include "engine/rank_run.h"
#include "engine/tensor_collection.h"
#include "ops/ops.h"
#include "spec/run_config.h"

#include <functional>
#include <memory>
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

/// What a run of a rank is made of; the default is ops/cpu on the mesh as it is.
struct Backends {
  std::function<std::unique_ptr<Ops>()> make_ops = {};
  std::function<std::unique_ptr<Mesh>(Mesh&)> wrap_mesh = {};                               // empty: none
  std::function<void(RankRun&, Mesh&, Ops&)> at_end = {};                                   // looks at a rank after its last step
  std::function<void(const MeshShape&, const std::function<void(Mesh&)>&)> run_ranks = {};  // empty: threads
};

/// With ranks as processes, each process gets what its rank knows: its slices, and on rank 0 the losses.
[[nodiscard]] std::unique_ptr<Trajectory> run_training(const RunConfig& config, const Backends& backends = {});

/// max|a - b| / max(max|b|, floor) over all tensors, and the name of the worst; names and counts must agree.
struct Difference {
  double error = 0;
  std::string name;
};
[[nodiscard]] Difference worst_difference(const TensorCollection& a, const TensorCollection& b, double floor);
/// The root mean square of all numbers: the floor for gradients.
[[nodiscard]] double root_mean_square(const TensorCollection& tensors);

}  // namespace echelon::testing
