// Observes what the layers of a rank read: the inputs of every matmul and norm, queries, keys and values with the
// ranges of keys that queries see, targets, and gradients. A probe wraps the backend and identifies a tensor by the
// parameter of its operation, so that layers are unaware of it.
//
// A read records its tokens of the global batch and its columns of the whole tensor, so that layouts can be compared.
#pragma once

#include "ops/ops.h"
#include "verify/combination.h"
#include "verify/context/token_places.h"
#include "verify/finding.h"
#include "verify/gradient/kv_parts.h"

#include <optional>
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
  ReadName name = {};
  bool is_recomputed = false;  // by the forward pass of a layer within backward
  int rank = 0;
  int stage = 0, microbatch = 0;
  int hop = 0;                            // of a ring: keys are those of the block that is this many places before
  std::int64_t first_row = 0;             // of this rank's rows of the microbatch
  std::vector<std::int64_t> tokens = {};  // of each row, in the global batch; no_token: padding
  std::int64_t first_column = 0;          // of the whole tensor
  std::int64_t num_columns = 0;
  Values values = {};                      // [rows, num_columns]
  const PartialResult* partial = nullptr;  // the last one before this read

  [[nodiscard]] std::int64_t num_rows() const {
    return num_columns == 0 ? 0 : static_cast<std::int64_t>(values.size()) / num_columns;
  }
};
using ReadListener = std::function<void(const Read& read)>;

/// Names of reads that other places look for. `layer` is "model.layers.3.self_attn".
inline const std::string read_of_targets = "targets";
[[nodiscard]] std::string read_of_heads(const char* what, const std::string& layer);
[[nodiscard]] std::string read_of_ranges(const std::string& layer);
/// Of the projection of keys or values, or the norm after it, where ranks share kv heads: one for each of them.
[[nodiscard]] std::string read_of_kv_parts(const std::string& weight);
[[nodiscard]] bool is_of_kv_parts(const ReadName& name);
[[nodiscard]] bool is_of_ranges(const ReadName& name);
/// The layer of such a name, or of that of a parameter of attention; empty: of none.
[[nodiscard]] std::string attention_layer_of(const std::string& tensor);
/// The index of the layer of a tensor; none outside of layers.
[[nodiscard]] std::optional<std::int64_t> layer_index_of(const std::string& tensor);
/// ModelSpec::window_of the layer of a tensor; 0 outside of layers.
[[nodiscard]] std::int64_t window_of_layer(const ModelSpec& model, const std::string& tensor);
/// Likewise has_rope; false outside of layers.
[[nodiscard]] bool has_rope_in_layer(const ModelSpec& model, const std::string& tensor);

/// Calls `listener` for every read in the step of `places`, on the rank's thread. `inner` (may be empty) is applied
/// between the probe and the step. `kv_replicas`: tensor-parallel ranks of the layout that share each kv head, of which
/// the parts of its gradient are read; 1: none.
class Probe final : public RankInterposer, public StepObserver {
 public:
  Probe(const TokenPlaces& places, int kv_replicas, ReadListener listener, Ops& ops, Mesh& mesh,
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
  /// `is_local`: between layers, where sequence parallelism divides the rank's tokens.
  void read(const std::string& tensor, Tensor x, std::int64_t first_column, bool is_local);
  void read_matmul(const MatmulArgs& args);
  void read_norm(Tensor weight, Tensor x, bool has_residual);
  void read_norm_gradient(Tensor weight, Tensor dy);
  void read_head_gradient(const Param& norm, Tensor dy);
  /// True: of the weight's output each rank has a part of the gradient.
  bool read_kv_part(const Param& weight, const Tensor& dy);
  void read_attention(const AttentionArgs& args);
  void read_attention_gradient(const AttentionBackwardArgs& args);
  void read_queries(const char* what, Tensor x);
  void read_keys(const char* what, const char* projection, Tensor x);
  /// Heads of the projection's, of these tokens.
  void read_heads(const char* what, const char* projection, Tensor x, std::vector<std::int64_t> tokens);
  void read_ranges(const AttentionMask& mask, std::int64_t num_keys);
  void read_targets(Tensor targets);
  void read_branch(Tensor y);
  void start_attention(bool is_backward);
  /// The first column of heads that this attention has, among those of the rank's projection.
  [[nodiscard]] std::int64_t first_column_of(const Param& projection, std::int64_t num_columns) const;
  /// Completes the read and hands it to the listener. Without `tokens` its rows are those of this rank.
  void emit(const std::string& tensor, Read read, std::vector<std::int64_t> tokens = {});
  /// Keys of other ranks that no query sees are not sent: their rows become padding.
  void leave_out_unseen(int block, std::vector<std::int64_t>& tokens) const;
  [[nodiscard]] BlockPlace place() const { return places_.place_of(plain_mesh_.rank(), action_.microbatch); }
  void keep_partial(const Param& weight, Tensor c);
  /// Whether tp ranks have addends of the gradient of the output of this weight, which the reference has no part like.
  [[nodiscard]] bool has_addends(const std::string& weight) const;
  [[nodiscard]] const Param* param_at(const Tensor& x) const;
  [[nodiscard]] const Param* param_named(const std::string& name) const;

  const TokenPlaces& places_;
  const RunConfig& config_;
  int kv_replicas_;
  KvParts kv_parts_;  // of one rank
  ReadListener listener_;
  Ops& plain_ops_;
  Mesh& plain_mesh_;
  std::unique_ptr<ProbeOps> ops_;
  std::unique_ptr<RankInterposer> inner_;
  std::vector<Param*> params_;  // of this rank; the place of their values may change in a step
  std::int64_t current_step_ = 0;
  Action action_;
  bool is_listening_ = false;
  bool is_of_forward_ = false;  // the operation that reads
  std::string matmul_;          // the weight of the last forward matmul of the action,
  int num_added_ = 0;           // and how often its branch was added to something since
  std::string attention_;       // the layer of the last attention of the action, "model.layers.3.self_attn"
  bool is_attention_backward_ = false;
  int call_ = 0;                       // of this attention: a hop of a ring, or a kv head of gathered keys
  std::int64_t num_targets_read_ = 0;  // in this action
  PartialResult partial_;
};

}  // namespace echelon
