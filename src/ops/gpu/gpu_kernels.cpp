#include "ops/gpu/gpu_kernels.h"

#include "ops/description.h"

#include <algorithm>
#include <type_traits>

namespace echelon::cuda {
namespace {

std::int64_t pieces(std::int64_t count, std::int64_t of) { return (count + of - 1) / of; }
std::int64_t one_if(bool is_there) { return is_there ? 1 : 0; }
/// A kernel over its elements.
std::int64_t over(const Tensor& x) { return one_if(x.num_elements() > 0); }
std::int64_t norm_gradients(const Tensor& x) { return keeps_row_beside_sums(x) ? over(x) : 2 * over(x); }

// The operations that are not one kernel over their elements.
template <class Args>
std::int64_t kernels_of(const Args& /*args*/) {
  return 1;
}
/// The largest magnitudes that nothing has left, and the rounding.
std::int64_t kernels_of(const std::vector<OperandRounding>& roundings) {
  return one_if(!roundings.empty()) +
         one_if(std::any_of(roundings.begin(), roundings.end(),
                            [](const OperandRounding& rounding) { return rounding.needs_amax(); }));
}
std::int64_t kernels_of(const MatmulArgs& args) { return over(args.c) + kernels_of(roundings_of(args)); }
std::int64_t kernels_of(const AddBiasArgs& args) { return over(args.y); }
std::int64_t kernels_of(const BiasBackwardArgs& args) { return over(args.dy); }
std::int64_t kernels_of(const EmbeddingBackwardArgs& args) {
  constexpr std::int64_t tokens_sorted_at_once = 8192;
  return 2 * pieces(args.tokens.num_elements(), tokens_sorted_at_once);
}
std::int64_t kernels_of(const LayerNormBackwardWeightArgs& args) { return over(args.x); }
std::int64_t kernels_of(const RmsNormBackwardWeightArgs& args) { return over(args.x); }
std::int64_t kernels_of(const LayerNormBackwardArgs& args) { return norm_gradients(args.x); }
std::int64_t kernels_of(const RmsNormBackwardArgs& args) { return norm_gradients(args.x); }
std::int64_t kernels_of(const AttentionBackwardArgs& args) { return 2 * over(args.q); }  // dq; dk and dv
std::int64_t kernels_of(const GeluBackwardArgs& args) { return over(args.x); }
std::int64_t kernels_of(const ExpertSlotsArgs& /*args*/) { return 3; }

template <class Args>
requires requires(JoinedOperations joined, Args args) { joined.hold(args); }
std::int64_t kernels_of(const Args& args) { return num_kernels_of(std::vector{args}); }

}  // namespace

std::int64_t num_gpu_kernels(const Operation& operation) {
  return operation.visit([](const auto& args) { return kernels_of(args); });
}

// The library has no epilogues in float64.
GpuKernelCount::GpuKernelCount()
    : products_([](const ProductCall& call) {
        return call.args.a.dtype != DType::float64 || call.epilogue == Epilogue::none;
      }) {}

void GpuKernelCount::add(const Operation& operation) {
  operation.visit([&](const auto& args) {
    if constexpr (requires { joined_.hold(args); }) {
      if (joined_.extends(args)) return;
      flush();
      joined_.hold(args);
      return;
    }
    if constexpr (requires { paired_.completed_by(args); })
      if (const auto pair = paired_.completed_by(args)) {
        count(KindOf<std::remove_cvref_t<decltype(pair->first)>>::value, kernels_of(pair->first),
              cost(pair->first).bytes);
        return count(operation.kind(), 0, cost(args).bytes);
      }
    if constexpr (requires { paired_.hold(args); }) {
      flush();
      return paired_.hold(args);
    }
    release_joined();
    release_paired();
    if (is_fused(operation)) return;
    flush();
    count(operation.kind(), kernels_of(args), cost(args).bytes);
  });
}

bool GpuKernelCount::is_fused(const Operation& operation) {
  if (const auto* matmul = operation.get_if<MatmulArgs>(); matmul != nullptr && matmul->c.num_elements() > 0) {
    if (!products_.may_join(*matmul)) flush();
    products_.hold(*matmul);
    return true;
  }
  if (const auto* bias = operation.get_if<AddBiasArgs>()) return products_.add_bias(bias->y, bias->bias);
  if (const auto* gradient = operation.get_if<BiasBackwardArgs>())
    return products_.column_sums(gradient->dy, gradient->dbias);
  if (const auto* sum = operation.get_if<AddArgs>()) return products_.add(sum->out, sum->a, sum->b);
  return false;
}

void GpuKernelCount::flush() {
  const std::vector<ProductCall> calls = products_.take();
  count(OpKind::matmul, kernels_of(roundings_of(calls)), 0);
  for (const ProductCall& call : calls) count(call);
  release_joined();
  release_paired();
}

void GpuKernelCount::release_paired() {
  paired_.release([&]<class Args>(const Pair<Args>& pair) {
    count(KindOf<Args>::value, kernels_of(pair.first), cost(pair.first).bytes);
  });
}

void GpuKernelCount::release_joined() {
  joined_.release([&]<class Args>(const std::vector<Args>& held) {
    std::int64_t bytes = 0;
    for (const Args& args : held) bytes += cost(args).bytes;
    count(KindOf<Args>::value, num_kernels_of(held), bytes);
  });
}

void GpuKernelCount::count(const ProductCall& call) {
  count(OpKind::matmul, over(call.args.c), call.count * cost(call.args).bytes);
  if (call.epilogue == Epilogue::bias) count(OpKind::add_bias, 0, call.count * bytes_of(call.vector));
  if (call.addend.exists()) count(OpKind::add, 0, bytes_of(call.addend));
  if (call.dbias.empty()) return;
  std::int64_t bytes = 0;  // the sums are written, and added to what was there
  for (const Tensor& dbias : call.dbias) bytes += 4 * bytes_of(dbias);
  count(OpKind::bias_backward, 1, bytes);
}

void GpuKernelCount::count(OpKind kind, std::int64_t kernels, std::int64_t bytes) {
  for (Counted* const counted : {&counts_[static_cast<std::size_t>(kind)], &total_}) {
    counted->kernels += kernels;
    counted->bytes += bytes;
  }
}

}  // namespace echelon::cuda
