// The norm of gradients and the update, each in one pass over memory.
#include "cuda/device/lanes.h"
#include "cuda/device/launch.h"
#include "cuda/device/packs.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/numbers.h"
#include "cuda/ops/unfinished.h"

#include "ops/check.h"

#include <cmath>

namespace echelon::cuda {
namespace {

constexpr int block_threads = 256;

/// AdamWArgs as the numbers that an element needs.
template <class A>
struct AdamWConstants {
  explicit AdamWConstants(const AdamWArgs& args)
      : decay(static_cast<A>(1 - args.lr * args.weight_decay)),
        step_size(static_cast<A>(args.lr / (1 - std::pow(args.beta1, static_cast<double>(args.step))))),
        sqrt_bias2(static_cast<A>(std::sqrt(1 - std::pow(args.beta2, static_cast<double>(args.step))))),
        eps(static_cast<A>(args.eps)),
        beta2(static_cast<A>(args.beta2)),
        one_minus_beta1(static_cast<A>(1 - args.beta1)),
        one_minus_beta2(static_cast<A>(1 - args.beta2)),
        grad_scale(static_cast<A>(args.grad_scale)) {}
  A decay, step_size, sqrt_bias2, eps, beta2, one_minus_beta1, one_minus_beta2, grad_scale;
};

template <class P, class G>
struct AdamWTensors {
  P* param;  // null where it is the master
  Wide<P>* master;
  const G* grad;
  Wide<P>*m, *v;
};

template <class P, class G>
__global__ void __launch_bounds__(block_threads) adamw_kernel(AdamWTensors<P, G> of, AdamWConstants<Wide<P>> with, std::int64_t count) {
  using A = Wide<P>;
  constexpr int width = pack_size<A>;
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x) * width, present = count - first;
  if (present <= 0) return;
  const Pack<G, width> grad = load_pack<width>(of.grad + first, present);
  Pack<A, width> p = load_pack<width>(of.master + first, present), m = load_pack<width>(of.m + first, present), v = load_pack<width>(of.v + first, present);
#pragma unroll
  for (int i = 0; i < width; ++i) {
    const A g = with.grad_scale * static_cast<A>(widen(grad.at[i]));
    p.at[i] *= with.decay;
    m.at[i] += with.one_minus_beta1 * (g - m.at[i]);
    v.at[i] = with.beta2 * v.at[i] + with.one_minus_beta2 * g * g;
    p.at[i] -= with.step_size * m.at[i] / (sqrt(v.at[i]) / with.sqrt_bias2 + with.eps);
  }
  store_pack(of.m + first, m, present);
  store_pack(of.v + first, v, present);
  store_pack(of.master + first, p, present);
  if (of.param != nullptr) store_pack(of.param + first, narrow<P>(p), present);
}

}  // namespace

void CudaOps::sum_of_squares(Tensor, Tensor) { not_yet(); }

void CudaOps::adamw(const AdamWArgs& args) {
  check(args);
  const std::int64_t count = args.master.num_elements();
  visit_numbers(args.param.dtype, [&]<class P>(P) {
    visit_numbers(args.grad.dtype, [&]<class G>(G) {
      using A = Wide<on_device<P>>;
      const AdamWTensors<on_device<P>, on_device<G>> of = {args.param.data == args.master.data ? nullptr : numbers<P>(args.param), numbers<A>(args.master),
                                                           numbers<G>(args.grad), numbers<A>(args.m), numbers<A>(args.v)};
      launch({.num_blocks = blocks_for(count, block_threads * pack_size<A>), .num_threads = block_threads, .stream = stream()},
             adamw_kernel<on_device<P>, on_device<G>>, of, AdamWConstants<A>(args), count);
    });
  });
}

}  // namespace echelon::cuda
