#include "cuda/ops/pending_product.h"

#include <utility>

namespace echelon::cuda {
namespace {

bool is_same(const Tensor& a, const Tensor& b) { return a.data == b.data && a.dtype == b.dtype && a.sizes == b.sizes; }

}  // namespace

void PendingProduct::hold(const MatmulArgs& args) {
  flush();
  if (Products::is_one(args))
    held_ = args;
  else
    products_.enqueue(args);
}

void PendingProduct::flush() {
  if (!held_) return;
  products_.enqueue(*std::exchange(held_, std::nullopt));
}

bool PendingProduct::add_bias(Tensor y, Tensor bias) {
  // After float8 matmuls with a float32 result the library's biases are bfloat16.
  const bool is_possible =
      held_ && is_same(held_->c, y) && bias.dtype == y.dtype && !(held_->is_float8() && y.dtype == DType::float32);
  return is_possible && fuse(Epilogue::bias, bias);
}

bool PendingProduct::column_sums(Tensor dy, Tensor sums) {
  // A product of float8 has no dy but one that is rounded.
  const bool is_possible =
      held_ && held_->transpose_a && is_same(held_->a, dy) && sums.dtype == held_->c.dtype && !held_->is_float8();
  return is_possible && fuse(Epilogue::bias_gradient, sums);
}

bool PendingProduct::fuse(Epilogue epilogue, Tensor vector) {
  if (!products_.enqueue(*held_, epilogue, vector)) return false;
  held_.reset();
  ++num_fused_;
  return true;
}

}  // namespace echelon::cuda
