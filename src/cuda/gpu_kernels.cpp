#include "cuda/gpu_kernels.h"

namespace echelon::cuda {
namespace {

std::int64_t pieces(std::int64_t count, std::int64_t of) { return (count + of - 1) / of; }
std::int64_t one_if(bool is_there) { return is_there ? 1 : 0; }
/// A kernel over its elements.
std::int64_t over(const Tensor& x) { return one_if(x.num_elements() > 0); }
/// Partial sums over the rows, and their sum.
std::int64_t column_sums(const Tensor& x) { return 2 * over(x); }

// The operations that are not one kernel over their elements.
template <class Args>
std::int64_t kernels_of(const Args& /*args*/) {
  return 1;
}
std::int64_t kernels_of(const MatmulArgs& args) { return over(args.c); }
std::int64_t kernels_of(const AddBiasArgs& args) { return over(args.y); }
std::int64_t kernels_of(const BiasBackwardArgs& args) { return column_sums(args.dy); }
std::int64_t kernels_of(const EmbeddingBackwardArgs& args) {
  constexpr std::int64_t tokens_sorted_at_once = 8192;
  return 2 * pieces(args.tokens.num_elements(), tokens_sorted_at_once);
}
std::int64_t kernels_of(const LayerNormBackwardWeightArgs& args) { return column_sums(args.x); }
std::int64_t kernels_of(const RmsNormBackwardWeightArgs& args) { return column_sums(args.x); }
std::int64_t kernels_of(const LayerNormBackwardArgs& args) { return column_sums(args.x); }
std::int64_t kernels_of(const RmsNormBackwardArgs& args) { return column_sums(args.x); }
std::int64_t kernels_of(const AttentionBackwardArgs& args) { return 3 * over(args.q); }  // delta; dk and dv; dq
std::int64_t kernels_of(const GeluBackwardArgs& args) {
  return args.dbias.exists() ? column_sums(args.x) : over(args.x);
}
std::int64_t kernels_of(const SumOfSquaresArgs& args) {
  constexpr std::int64_t bytes_of_block = 256 * 4 * 16;  // threads, packs in flight of each, bytes of a pack
  return over(args.x) + one_if(args.x.num_bytes() > bytes_of_block);  // blocks leave partial sums
}
std::int64_t kernels_of(const AdamWArgs& args) { return over(args.master); }
std::int64_t kernels_of(const ExpertSlotsArgs& /*args*/) { return 3; }

bool is_same(const Tensor& a, const Tensor& b) { return a.data == b.data && a.dtype == b.dtype && a.sizes == b.sizes; }
bool follows(const Tensor& next, const Tensor& x) {
  return next.dtype == x.dtype && next.data == x.data + x.num_bytes();
}
void extend(Tensor& x, const Tensor& next) { x = {x.data, x.dtype, {x.num_elements() + next.num_elements()}}; }

}  // namespace

std::int64_t num_gpu_kernels(const Operation& operation) {
  return operation.visit([](const auto& args) { return kernels_of(args); });
}

void GpuKernelCount::add(const Operation& operation) {
  if (is_joined(operation)) return;
  const bool is_fused_bias = is_fused(operation);
  flush();
  // Of a fused bias nothing is left, and of a bias gradient the addition to what was there.
  if (is_fused_bias)
    total_ += one_if(operation.kind() == OpKind::bias_backward);
  else
    hold(operation);
}

void GpuKernelCount::hold(const Operation& operation) {
  if (const auto* matmul = operation.get_if<MatmulArgs>())
    product_ = *matmul;
  else if (const auto* squares = operation.get_if<SumOfSquaresArgs>())
    squares_ = *squares;
  else if (const auto* update = operation.get_if<AdamWArgs>())
    update_ = *update;
  else
    total_ += num_gpu_kernels(operation);
}

void GpuKernelCount::flush() {
  total_ = total();
  product_.reset();
  squares_.reset();
  update_.reset();
}

std::int64_t GpuKernelCount::total() const {
  return total_ + (product_ ? kernels_of(*product_) : 0) + (squares_ ? kernels_of(*squares_) : 0) +
         (update_ ? kernels_of(*update_) : 0);
}

// The library has no epilogues in float64.
bool GpuKernelCount::is_fused(const Operation& operation) const {
  if (!product_ || product_->c.num_elements() == 0 || product_->a.dtype == DType::float64) return false;
  if (const auto* bias = operation.get_if<AddBiasArgs>())
    return is_same(product_->c, bias->y) && bias->bias.dtype == bias->y.dtype;
  if (const auto* gradient = operation.get_if<BiasBackwardArgs>())
    return product_->transpose_a && is_same(product_->a, gradient->dy) && gradient->dbias.dtype == product_->c.dtype;
  return false;
}

bool GpuKernelCount::is_joined(const Operation& operation) {
  if (const auto* next = operation.get_if<SumOfSquaresArgs>(); next != nullptr && squares_) {
    if (next->sum.data != squares_->sum.data || !follows(next->x, squares_->x)) return false;
    extend(squares_->x, next->x);
    return true;
  }
  const auto* next = operation.get_if<AdamWArgs>();
  if (next == nullptr || !update_ || next->m.dtype != accumulate_dtype(next->param.dtype)) return false;
  if (next->scalars.data != update_->scalars.data || next->weight_decay != update_->weight_decay) return false;
  constexpr Tensor AdamWArgs::*tensors[] = {&AdamWArgs::param, &AdamWArgs::master, &AdamWArgs::grad, &AdamWArgs::m,
                                            &AdamWArgs::v};
  for (const auto tensor : tensors)
    if (!follows(next->*tensor, (*update_).*tensor)) return false;
  for (const auto tensor : tensors) extend((*update_).*tensor, next->*tensor);
  return true;
}

}  // namespace echelon::cuda
