// Observes what the layers of a rank read: the inputs of every matmul and norm, queries and keys, and their gradients.
// A probe wraps the backend and identifies a tensor by the parameter of its operation, so that layers are unaware of
// it.
//
// A read records its tokens of the global batch and its columns of the whole tensor, so that layouts can be compared.
#pragma once

#include "blueprint/batch_layout.h"
#include "ops/ops.h"
#include "verify/combination.h"
#include "verify/finding.h"

#include <vector>

namespace echelon {

/// Which tensor: "input of model.norm.weight" in a forward or a backward action.
struct ReadName {
  bool is_backward = false;
  std::string tensor;
  auto operator<=>(const ReadName&) const = default;
};

/// A matmul or a look-up whose result is this rank's addend of a sum over tp.
struct PartialResult {
  std::string weight;  // empty: none earlier in this action
  std::int64_t num_rows = 0;
  Values values;
};

struct Read {
  ReadName name;
  int rank = 0;
  int stage = 0, microbatch = 0;
  std::int64_t first_row = 0;     // token of the global batch
  std::int64_t first_column = 0;  // of the whole tensor
  std::int64_t num_columns = 0;
  Values values;                             // [rows, num_columns]
  const PartialResult* partial = nullptr;    // the last one before this read
  std::int64_t first_row_of_microbatch = 0;  // of this rank's tokens

  [[nodiscard]] std::int64_t num_rows() const {
    return num_columns == 0 ? 0 : static_cast<std::int64_t>(values.size()) / num_columns;
  }
};
using ReadListener = std::function<void(const Read& read)>;

/// Calls `listener` for every read in step `step`, on the rank's thread. `inner` (may be empty) is applied between the
/// probe and the step.
class Probe final : public RankInterposer, public StepObserver {
 public:
  Probe(const RunConfig& config, std::int64_t step, ReadListener listener, Ops& ops, Mesh& mesh,
        const Interpose& inner);
  ~Probe() override;

  [[nodiscard]] Ops& ops() override;
  [[nodiscard]] Mesh& mesh() override;
  void attach(RankRun& run) override;
  [[nodiscard]] StepObserver* observer() override { return this; }
  void begins(const Action& action, ActionPart part) override;
  void ends() override;

 private:
  class ProbeOps;

  void before(const Operation& operation);
  void after(const Operation& operation);
  void read(const std::string& tensor, Tensor x, std::int64_t first_column, bool is_local);
  void read_matmul(const MatmulArgs& args);
  void read_norm(Tensor weight, Tensor x, bool has_residual);
  void read_norm_gradient(Tensor weight, Tensor dy);
  void read_heads(const char* what, const char* projection, Tensor x);
  void keep_partial(const Param& weight, Tensor c);
  [[nodiscard]] const Param* param_at(const Tensor& x) const;
  [[nodiscard]] const Param* param_named(const std::string& name) const;

  const RunConfig& config_;
  BatchLayout layout_;
  std::int64_t step_;
  ReadListener listener_;
  Ops& plain_ops_;
  Mesh& plain_mesh_;
  std::unique_ptr<ProbeOps> ops_;
  std::unique_ptr<RankInterposer> inner_;
  std::vector<Param*> params_;  // of this rank; the place of their values may change in a step
  std::int64_t current_step_ = 0;
  Action action_;
  bool is_listening_ = false;
  std::string matmul_;     // the weight of the last forward matmul of the action
  std::string attention_;  // the prefix of the last projection of queries, "model.layers.3.self_attn."
  PartialResult partial_;
};

}  // namespace echelon
