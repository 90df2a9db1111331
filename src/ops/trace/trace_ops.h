// A backend without data: it checks the arguments and writes down what would be computed. A layer's own code, run on it, is the layer's cost model.
#pragma once

#include "ops/cost.h"
#include "ops/op_kind.h"
#include "ops/ops.h"

#include <vector>

namespace echelon {

struct OpRecord {
  OpKind kind = OpKind::matmul;
  DType dtype = DType::float32;      // of the activations
  std::int64_t m = 0, n = 0, k = 0;  // as in OpCost
  std::int64_t flops = 0;            // as in ops/cost.h
  std::int64_t bytes = 0;            // read and written, once each
  bool operator==(const OpRecord&) const = default;
};

/// Runs on tensors with or without data and touches none. Not thread-safe: one per rank.
class TraceOps : public Ops {
 public:
  [[nodiscard]] const std::vector<OpRecord>& records() const { return records_; }
  void clear() { records_.clear(); }
  [[nodiscard]] std::int64_t total_flops() const;
  [[nodiscard]] std::int64_t total_bytes() const;

  void matmul(const MatmulArgs& args) override;
  void add_bias(Tensor y_ND, Tensor bias_D) override;
  void bias_backward(Tensor dy_ND, Tensor dbias_D) override;
  void add(Tensor out, Tensor a, Tensor b) override;
  void copy(Tensor out, Tensor x) override;
  void fill(Tensor out, double value) override;
  void scale(Tensor x, double factor) override;
  void embedding(const EmbeddingArgs& args) override;
  void embedding_backward(const EmbeddingBackwardArgs& args) override;
  void add_positions(const PositionsArgs& args) override;
  void positions_backward(const PositionsBackwardArgs& args) override;
  void layer_norm(const LayerNormArgs& args) override;
  void layer_norm_backward_input(const LayerNormBackwardInputArgs& args) override;
  void layer_norm_backward_weight(const LayerNormBackwardWeightArgs& args) override;
  void rms_norm(const RmsNormArgs& args) override;
  void rms_norm_backward_input(const RmsNormBackwardInputArgs& args) override;
  void rms_norm_backward_weight(const RmsNormBackwardWeightArgs& args) override;
  void rope(const RopeArgs& args) override;
  void attention(const AttentionArgs& args) override;
  void attention_backward(const AttentionBackwardArgs& args) override;
  void gelu(Tensor y, Tensor x) override;
  void gelu_backward(Tensor dx, Tensor dy, Tensor x) override;
  void swiglu(Tensor y, Tensor gate, Tensor up) override;
  void swiglu_backward(Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up) override;
  void row_max(const RowMaxArgs& args) override;
  void row_sum_exp(const RowSumExpArgs& args) override;
  void cross_entropy(const CrossEntropyArgs& args) override;
  void cross_entropy_backward(const CrossEntropyBackwardArgs& args) override;
  void sum_of_squares(Tensor x, Tensor sum) override;
  void adamw(const AdamWArgs& args) override;
  void upload(Tensor out, const void* host) override;
  void download(void* host, Tensor x) override;
  void publish() override {}

 private:
  void record(OpKind kind, DType dtype, const OpCost& cost);

  std::vector<OpRecord> records_;
};

}  // namespace echelon
