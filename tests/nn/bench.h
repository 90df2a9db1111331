// A layer with memory, random parameters, inputs and output gradients, so that a test can run it, and nudge what it
// pleases.
#pragma once

#include "nn/decoder/head.h"
#include "nn/decoder/rope_tables.h"
#include "nn/decoder/stage.h"
#include "nn/layer.h"
#include "ops/reference/reference_ops.h"
#include "tensor/arena.h"

#include <functional>
#include <random>
#include <string>
#include <vector>

namespace echelon::test {

/// A mesh of one rank, which layers with tp = 1 must leave alone.
class LonelyMesh : public Mesh {
 public:
  LonelyMesh() : Mesh(MeshShape(), 0) {}
  [[nodiscard]] Comm& comm(const Group& group) override;
  void poll() override {}
  [[nodiscard]] std::map<Group, std::int64_t> sent_bytes() const override { return {}; }
  void abort(const std::string&) override {}
};

/// Tokens and targets of a microbatch, the same for everybody who asks with the same seed. About one target in
/// `ignore_every` is not predicted.
struct Batch {
  std::vector<std::int32_t> tokens, targets;
  std::vector<std::int32_t> key_begin = {};  // as that of a Microbatch
};
[[nodiscard]] Batch random_batch(const LayerOptions& options, unsigned seed = 7, int ignore_every = 5);

/// Reads and writes a tensor of any floating dtype as float64.
[[nodiscard]] std::vector<double> numbers_of(const Tensor& tensor);
void set_numbers(const Tensor& tensor, const std::vector<double>& numbers);

/// This rank's slice of a random tensor that depends on the parameter's name alone: around 1 for norms, else around 0
/// with a spread that keeps softmaxes soft.
[[nodiscard]] std::vector<double> random_parameter(const Param& param, double spread = 0.4);

enum class BackwardKind { fused, split };

/// Bytes of the regions that a layer works in.
struct RegionBytes {
  std::int64_t slot = 0, input_slot = 0, gradient_slot = 0, workspace = 0;
  [[nodiscard]] std::int64_t sum() const { return slot + input_slot + gradient_slot + workspace; }
  bool operator==(const RegionBytes&) const = default;
};

/// What a layer is asked to do; Stage and Layer have different interfaces.
struct Passes {
  std::vector<Param*> params;
  std::function<void(Context&, Tensor x, Tensor y, Stash&)> forward;
  std::function<void(Context&, Tensor dy, Tensor dx, Stash&)> backward, backward_input;
  std::function<void(Context&, Stash&)> backward_weight;
};
[[nodiscard]] Passes passes_of(Layer& layer);
/// All units at once, or one call per unit.
enum class Calls { whole_stage, by_unit };
[[nodiscard]] Passes passes_of(Stage& stage, Calls calls = Calls::whole_stage);

/// RoPE tables with memory, of all layers and of those with options.window; without tables if the model has no RoPE.
struct Tables {
  explicit Tables(const LayerOptions& options);
  Arena arena{1 << 16};
  Tensor cos, sin;
  RopeTables rope, rope_of_queries;
};

/// The bytes that forward and a backward pass take, measured without data. The parameters must have no memory, or
/// memory that nobody reads.
[[nodiscard]] RegionBytes measure(const Passes& passes, const LayerOptions& options, Mesh& mesh, BackwardKind kind,
                                  Ops& trace_ops);
[[nodiscard]] RegionBytes measure(const Passes& passes, const LayerOptions& options, Mesh& mesh, BackwardKind kind);
/// The same of forward alone, where no gradient is wanted.
[[nodiscard]] RegionBytes measure_evaluation(const Passes& passes, const LayerOptions& options, Mesh& mesh);

/// One rank's layer at work in memory of exactly the measured sizes.
class Bench {
 public:
  Bench(Passes passes, const LayerOptions& options, Mesh& mesh, Mesh& trace_mesh,
        std::unique_ptr<Ops> ops = make_reference_ops());

  [[nodiscard]] std::vector<Param*> params() const { return passes_.params; }
  [[nodiscard]] Tensor x() const { return x_; }
  [[nodiscard]] Tensor y() const { return y_; }
  [[nodiscard]] Tensor dx() const { return dx_; }
  [[nodiscard]] Tensor dy() const { return dy_; }
  [[nodiscard]] Ops& ops() { return *ops_; }

  /// Other tokens and targets than random_batch's.
  void set_batch(const Batch& batch);
  /// y and loss_sum, without a gradient to come.
  void forward();
  /// forward and backward: dx, and the gradients of the parameters from zero. Returns the bytes that were really used.
  RegionBytes run(BackwardKind kind);
  [[nodiscard]] double loss_sum() const { return *loss_sum_.as<double>(); }
  /// The function whose gradient `run` computes: sum of dy * y, plus gradient_scale * loss_sum.
  [[nodiscard]] double objective();

  /// What the trace says of forward and this backward pass.
  [[nodiscard]] RegionBytes measured(BackwardKind kind) const { return bytes_[static_cast<std::size_t>(kind)]; }

  static constexpr double gradient_scale = 0.37;

 private:
  [[nodiscard]] Context context(Stack& workspace, bool needs_gradient);

  Passes passes_;
  LayerOptions options_;
  Mesh& mesh_;
  std::unique_ptr<Ops> ops_;
  RegionBytes evaluation_bytes_;
  std::array<RegionBytes, 2> bytes_;  // by BackwardKind
  Arena arena_;
  Stack memory_;
  Tensor tokens_, targets_, loss_sum_;
  std::vector<std::int32_t> key_begin_;
  Tensor x_, y_, dx_, dy_;
};

/// The largest error of `bench`'s gradients against central differences of fourth order, along random directions and in
/// single entries; relative to the size of the gradients.
[[nodiscard]] double finite_difference_error(Bench& bench, std::string& worst);

}  // namespace echelon::test
