// A backend without data: it checks the arguments and records the operations. The code of a layer, run on it, is the
// cost model of the layer.
#pragma once

#include "ops/gpu/gpu_kernels.h"
#include "ops/operands.h"
#include "ops/ops.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace echelon {

struct OpRecord {
  OpKind kind = OpKind::matmul;
  DType dtype = DType::float32;      // of the activations
  std::int64_t m = 0, n = 0, k = 0;  // as in OpCost
  std::int64_t flops = 0;            // as in ops/cost.h
  std::int64_t bytes = 0;            // read and written, once each
  bool is_float8 = false;            // a matmul of operands that are rounded to 8 bits
  std::int64_t rounding_bytes = 0;   // of `bytes`: those that it moves to round them first
  bool is_weight_gradient = false;   // a matmul dw += dy^T x
  std::int32_t num_kernels = 1;      // that it makes a GPU's host issue (TraceOps::count_kernels); 1: not counted
  bool operator==(const OpRecord&) const = default;
};

/// The name of its times in machine files: "adamw", "matmul", "matmul_weight_gradient".
[[nodiscard]] std::string curve_name(OpKind kind, bool is_weight_gradient);

/// Runs on tensors with or without data and touches none. Not thread-safe: one per rank.
class TraceOps : public Ops {
 public:
  [[nodiscard]] const std::vector<OpRecord>& records() const { return records_; }
  void clear() { records_.clear(); }
  /// `listener` receives every record as it is made; none is kept.
  void listen(std::function<void(const OpRecord&)> listener) { listener_ = std::move(listener); }
  /// `listener` receives the tensors of every operation, before its record is made.
  void listen_to_operands(std::function<void(const Operands&)> listener) { operand_listener_ = std::move(listener); }
  /// From now on records have the kernels that a GPU's host issues on their arrival: their own, and those that were
  /// held for fusion (ops/gpu/gpu_kernels.h). Tensors need addresses. `late` receives how many publish() releases.
  void count_kernels(std::function<void(std::int64_t)> late);
  [[nodiscard]] std::int64_t total_flops() const;
  [[nodiscard]] std::int64_t total_bytes() const;

  void perform(const Operation& operation) override;
  void upload(Tensor out, const void* host) override;
  void download(void* host, Tensor x) override;
  [[nodiscard]] bool computes_values() const override { return false; }
  void publish() override;

 private:
  void note(const OpRecord& record);
  void transfer(OpKind kind, const Tensor& x);

  std::vector<OpRecord> records_;
  std::function<void(const OpRecord&)> listener_;
  std::function<void(const Operands&)> operand_listener_;
  std::function<void(std::int64_t)> late_;
  std::optional<cuda::GpuKernelCount> kernels_;
};

}  // namespace echelon
