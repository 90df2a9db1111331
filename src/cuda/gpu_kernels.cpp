#include "cuda/gpu_kernels.h"

#include <algorithm>
#include <numeric>

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
std::int64_t kernels_of(const ExpertSlotsArgs& /*args*/) { return 3; }

// Of what is joined in one launch.
std::int64_t kernels_of(const std::vector<FillArgs>& held) {
  return one_if(std::any_of(held.begin(), held.end(), [](const FillArgs& args) { return over(args.out) > 0; }));
}
std::int64_t kernels_of(const std::vector<AdamWArgs>& held) {
  return one_if(std::any_of(held.begin(), held.end(), [](const AdamWArgs& args) { return over(args.master) > 0; }));
}
std::int64_t kernels_of(const std::vector<SumOfSquaresArgs>& held) {
  constexpr std::int64_t bytes_of_block = 256 * 4 * 16;  // threads, packs in flight of each, bytes of a pack
  std::int64_t num_blocks = 0;                           // if there were no limit
  for (const SumOfSquaresArgs& args : held) num_blocks += pieces(args.x.num_bytes(), bytes_of_block);
  return std::min<std::int64_t>(num_blocks, 2);  // several blocks leave partial sums
}
template <class Args>
requires requires(JoinedOperations joined, Args args) { joined.hold(args); }
std::int64_t kernels_of(const Args& args) { return kernels_of(std::vector{args}); }

bool is_same(const Tensor& a, const Tensor& b) { return a.data == b.data && a.dtype == b.dtype && a.sizes == b.sizes; }

}  // namespace

std::int64_t num_gpu_kernels(const Operation& operation) {
  return operation.visit([](const auto& args) { return kernels_of(args); });
}

void GpuKernelCount::add(const Operation& operation) {
  operation.visit([&](const auto& args) {
    if constexpr (requires { joined_.hold(args); }) {
      if (joined_.extends(args)) return;
      flush();
      joined_.hold(args);
    } else {
      const bool is_fused_bias = is_fused(operation);
      flush();
      if (const auto* matmul = operation.get_if<MatmulArgs>())
        product_ = *matmul;
      else if (!is_fused_bias)
        count(operation.kind(), kernels_of(args));
      else if (operation.kind() == OpKind::bias_backward)
        count(operation.kind(), 1);  // adds the sums to what was there
    }
  });
}

void GpuKernelCount::flush() {
  if (product_) count(OpKind::matmul, kernels_of(*product_));
  product_.reset();
  joined_.release([&]<class Args>(const std::vector<Args>& held) { count(KindOf<Args>::value, kernels_of(held)); });
}

std::int64_t GpuKernelCount::total() const { return std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0}); }

// The library has no epilogues in float64.
bool GpuKernelCount::is_fused(const Operation& operation) const {
  if (!product_ || product_->c.num_elements() == 0 || product_->a.dtype == DType::float64) return false;
  if (const auto* bias = operation.get_if<AddBiasArgs>())
    return is_same(product_->c, bias->y) && bias->bias.dtype == bias->y.dtype;
  if (const auto* gradient = operation.get_if<BiasBackwardArgs>())
    return product_->transpose_a && is_same(product_->a, gradient->dy) && gradient->dbias.dtype == product_->c.dtype;
  return false;
}

}  // namespace echelon::cuda
