#include "ops/trace/trace_ops.h"

#include "ops/description.h"

#include <numeric>

namespace echelon {
namespace {

OpRecord record_of(OpKind kind, DType dtype, const OpCost& cost) {
  return {
      .kind = kind, .dtype = dtype, .m = cost.m, .n = cost.n, .k = cost.k, .flops = cost.flops, .bytes = cost.bytes};
}

}  // namespace

std::string curve_name(OpKind kind, bool is_weight_gradient) {
  return std::string(name_of(kind)) + (is_weight_gradient ? "_weight_gradient" : "");
}

void TraceOps::perform(const Operation& operation) {
  check(operation);
  const Operands operands = operands_of(operation);
  if (operand_listener_) operand_listener_(operands);
  OpRecord record = record_of(operation.kind(), operands.dtype, cost(operation));
  const auto* const product = operation.get_if<MatmulArgs>();
  if (product != nullptr) {
    record.is_float8 = product->is_float8();
    record.rounding_bytes = rounding_bytes(*product);
    record.is_weight_gradient = product->transpose_a;
  }
  if (kernels_) {
    const std::int64_t before = kernels_->total().kernels;
    kernels_->add(operation);
    record.num_kernels = static_cast<std::int32_t>(kernels_->total().kernels - before);
  }
  note(record);
}

void TraceOps::count_kernels(std::function<void(std::int64_t)> late) {
  kernels_.emplace();
  late_ = std::move(late);
}

void TraceOps::publish() {
  if (!kernels_) return;
  const std::int64_t before = kernels_->total().kernels;
  kernels_->flush();
  if (const std::int64_t released = kernels_->total().kernels - before; released > 0) late_(released);
}

void TraceOps::upload(Tensor out, const void* /*host*/) {
  if (operand_listener_) operand_listener_({.dtype = out.dtype, .reads = {}, .overwrites = {out}});
  transfer(OpKind::upload, out);
}

void TraceOps::download(void* /*host*/, Tensor x) {
  if (operand_listener_) operand_listener_({.dtype = x.dtype, .reads = {x}, .overwrites = {}});
  transfer(OpKind::download, x);
}

void TraceOps::transfer(OpKind kind, const Tensor& x) {
  publish();
  OpRecord record = record_of(kind, x.dtype, cost_of_transfer(x));
  record.num_kernels = 0;
  note(record);
}

void TraceOps::note(const OpRecord& record) {
  if (listener_)
    listener_(record);
  else
    records_.push_back(record);
}

std::int64_t TraceOps::total_flops() const {
  return std::accumulate(records_.begin(), records_.end(), std::int64_t{0},
                         [](std::int64_t sum, const OpRecord& r) { return sum + r.flops; });
}

std::int64_t TraceOps::total_bytes() const {
  return std::accumulate(records_.begin(), records_.end(), std::int64_t{0},
                         [](std::int64_t sum, const OpRecord& r) { return sum + r.bytes; });
}

}  // namespace echelon
