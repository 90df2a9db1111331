// GELU and SwiGLU, and their gradients (formulas: ops/reference/activations.cpp). With s = sigmoid(2u) = (1 + tanh
// u)/2, which needs one exponential and loses nothing for negative x:
//     gelu(x) = x s        gelu'(x) = s + 2 x s (1 - s) u'
// All are bound by memory: every number is read once and written once, 16 bytes at a time.
#include "cuda/device/lanes.h"
#include "cuda/device/launch.h"
#include "cuda/device/packs.h"
#include "cuda/ops/amax.h"
#include "cuda/ops/column_sums.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/numbers.h"

namespace echelon::cuda {
namespace {

constexpr int block_threads = 256;

// Of the approximations of exp and division each is right to a few units in the last place.
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0F, 1.0F + __expf(-x)); }
__device__ __forceinline__ double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

template <class A>
constexpr A two_slopes = static_cast<A>(2 * 0.7978845608028653558798921198687);  // 2 sqrt(2 / pi)
template <class A>
constexpr A cubic = static_cast<A>(0.044715);

template <class A>
__device__ __forceinline__ A gelu_sigmoid(A x) {
  return sigmoid(two_slopes<A> * (x + cubic<A> * x * x * x));
}
/// Of an x whose gelu_sigmoid is s.
template <class A>
__device__ __forceinline__ A gelu_derivative(A x, A s) {
  return s + x * s * (1 - s) * (two_slopes<A> * (1 + 3 * cubic<A> * x * x));
}

/// Each is x s(x); of an x whose s is known, its derivative.
template <class A>
struct GeluTanh {
  static __device__ __forceinline__ A s(A x) { return gelu_sigmoid(x); }
  static __device__ __forceinline__ A derivative(A x, A s_x) { return gelu_derivative(x, s_x); }
};
template <class A>
struct GeluErf {
  static __device__ __forceinline__ A s(A x) { return erfc(static_cast<A>(-0.70710678118654752440) * x) / 2; }
  static __device__ __forceinline__ A derivative(A x, A s_x) {
    return s_x + x * (static_cast<A>(0.39894228040143267794) * exp(-x * x / 2));
  }
};
template <class A>
struct Silu {
  static __device__ __forceinline__ A s(A x) { return sigmoid(x); }
  static __device__ __forceinline__ A derivative(A x, A s_x) { return s_x * (1 + x * (1 - s_x)); }
};

/// The larger of its largest magnitude and `than`.
template <class T, int width>
__device__ __forceinline__ unsigned store_and_measure(T* address, const Pack<T, width>& pack, std::int64_t present,
                                                      unsigned than) {
  store_pack(address, pack, present);
  if (present >= width) return larger_of(than, pack);
#pragma unroll
  for (int i = 0; i < width; ++i)
    if (i < present) than = max(than, magnitude_of(pack.at[i]));
  return than;
}

__device__ __forceinline__ unsigned thread_number() { return blockIdx.x * blockDim.x + threadIdx.x; }

// A thread takes packs `stride` apart, `packs_in_flight` of them, and loads all before it stores any. With a bias the
// stride is a multiple of a row, so that all its packs are of the same columns.
constexpr int packs_in_flight = 4;

template <class T, int width, template <class> class Form>
__global__ void __launch_bounds__(block_threads) gelu_kernel(const T* x, const T* bias, T* y, unsigned row_packs,
                                                             unsigned stride, std::int64_t count, Amaxes<1> amaxes) {
  const unsigned thread = thread_number();
  const std::int64_t end = thread < stride ? count : 0;
  unsigned largest[1] = {};
  Pack<T, width> x_k[packs_in_flight], bias_k = {};
  if (bias != nullptr && end > 0)
    bias_k = load_pack<width>(bias + static_cast<std::int64_t>(thread % row_packs) * width);
#pragma unroll
  for (int k = 0; k < packs_in_flight; ++k) {
    const std::int64_t first = (thread + static_cast<std::int64_t>(k) * stride) * width;
    if (first < end) x_k[k] = load_pack<width>(x + first, end - first);
  }
#pragma unroll
  for (int k = 0; k < packs_in_flight; ++k) {
    const std::int64_t first = (thread + static_cast<std::int64_t>(k) * stride) * width;
    if (first >= end) break;
    Pack<Wide<T>, width> y_k = widen(x_k[k]);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      if (bias != nullptr) y_k.at[i] += widen(bias_k.at[i]);
      y_k.at[i] *= Form<Wide<T>>::s(y_k.at[i]);
    }
    largest[0] = store_and_measure(y + first, narrow<T>(y_k), end - first, largest[0]);
  }
  leave_amaxes(amaxes, largest, gridDim.x);
}

/// dx, its column sums, and y once more. A summand of ops/column_sums.h; without sums, gelu_backward_kernel.
template <class T, int columns, template <class> class Form>
struct GeluGradients {
  using Number = T;
  static constexpr int width = columns, num_sums = 1, num_amaxes = 2;
  struct Loaded {
    Pack<T, columns> dy, x;
  };

  const T *dy, *x, *bias;  // bias and y may be null
  T *dx, *y;
  std::int64_t D;
  Amaxes<2> amaxes;  // of dx and y

  __device__ Loaded load(std::int64_t row, std::int64_t column) const {
    return {load_pack<width>(dy + row * D + column), load_pack<width>(x + row * D + column)};
  }
  __device__ void add(const Loaded& loaded, std::int64_t row, std::int64_t column, Wide<T> (&sums)[1][width],
                      unsigned (&largest)[2]) const {
    Pack<Wide<T>, width> x_i = widen(loaded.x), dx_i = widen(loaded.dy);
    if (bias != nullptr) {
      const Pack<T, width> bias_i = load_pack<width>(bias + column);
#pragma unroll
      for (int i = 0; i < width; ++i) x_i.at[i] += widen(bias_i.at[i]);
    }
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const Wide<T> s = Form<Wide<T>>::s(x_i.at[i]);
      dx_i.at[i] *= Form<Wide<T>>::derivative(x_i.at[i], s);
      sums[0][i] += dx_i.at[i];
      x_i.at[i] *= s;
    }
    largest[0] = store_and_measure(dx + row * D + column, narrow<T>(dx_i), width, largest[0]);
    if (y != nullptr) largest[1] = store_and_measure(y + row * D + column, narrow<T>(x_i), width, largest[1]);
  }
};

template <class Gradients>
__global__ void __launch_bounds__(block_threads)
    gelu_backward_kernel(Gradients of, unsigned row_packs, unsigned num_packs) {
  const unsigned pack = thread_number();
  const std::int64_t row = pack / row_packs, column = static_cast<std::int64_t>(pack % row_packs) * Gradients::width;
  Wide<typename Gradients::Number> unused[1][Gradients::width] = {};
  unsigned largest[2] = {};
  if (pack < num_packs) of.add(of.load(row, column), row, column, unused, largest);
  leave_amaxes(of.amaxes, largest, gridDim.x);
}

template <class T, template <class> class Gate>
__global__ void __launch_bounds__(block_threads)
    swiglu_kernel(const T* gate, const T* up, T* y, unsigned stride, std::int64_t count, Amaxes<1> amaxes) {
  constexpr int width = pack_size<T>, in_flight = packs_in_flight / 2;
  const unsigned thread = thread_number();
  const std::int64_t end = thread < stride ? count : 0;
  unsigned largest[1] = {};
  Pack<T, width> gate_k[in_flight], up_k[in_flight];
#pragma unroll
  for (int k = 0; k < in_flight; ++k) {
    const std::int64_t first = (thread + static_cast<std::int64_t>(k) * stride) * width;
    if (first >= end) break;
    gate_k[k] = load_pack<width>(gate + first, end - first);
    up_k[k] = load_pack<width>(up + first, end - first);
  }
#pragma unroll
  for (int k = 0; k < in_flight; ++k) {
    const std::int64_t first = (thread + static_cast<std::int64_t>(k) * stride) * width;
    if (first >= end) break;
    Pack<Wide<T>, width> y_k;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const Wide<T> g = widen(gate_k[k].at[i]);
      y_k.at[i] = g * Gate<Wide<T>>::s(g) * widen(up_k[k].at[i]);
    }
    largest[0] = store_and_measure(y + first, narrow<T>(y_k), end - first, largest[0]);
  }
  leave_amaxes(amaxes, largest, gridDim.x);
}

template <class T>
struct SwigluGradients {
  const T *dy, *gate, *up;
  T *dgate, *dup, *y;
  Amaxes<3> amaxes;  // of dgate, dup and y
};

template <class T, template <class> class Gate>
__global__ void __launch_bounds__(block_threads) swiglu_backward_kernel(SwigluGradients<T> of, std::int64_t count) {
  constexpr int width = pack_size<T>;
  const std::int64_t first = static_cast<std::int64_t>(thread_number()) * width,
                     present = max(count - first, std::int64_t{0});
  unsigned largest[3] = {};
  const Pack<T, width> dy = load_pack<width>(of.dy + first, present), gate = load_pack<width>(of.gate + first, present),
                       up = load_pack<width>(of.up + first, present);
  Pack<Wide<T>, width> dgate, dup, y;
#pragma unroll
  for (int i = 0; i < width; ++i) {
    const Wide<T> g = widen(gate.at[i]), u = widen(up.at[i]), dy_i = widen(dy.at[i]), s = Gate<Wide<T>>::s(g),
                  gated = g * s;
    dgate.at[i] = dy_i * u * Gate<Wide<T>>::derivative(g, s);
    dup.at[i] = dy_i * gated;
    y.at[i] = gated * u;
  }
  largest[0] = store_and_measure(of.dgate + first, narrow<T>(dgate), present, largest[0]);
  largest[1] = store_and_measure(of.dup + first, narrow<T>(dup), present, largest[1]);
  if (of.y != nullptr) largest[2] = store_and_measure(of.y + first, narrow<T>(y), present, largest[2]);
  leave_amaxes(of.amaxes, largest, gridDim.x);
}

Launch of_threads(std::int64_t count, cudaStream_t stream) {
  return {.num_blocks = blocks_for(count, block_threads), .num_threads = block_threads, .stream = stream};
}

template <template <class> class Form>
void compute_gelu_backward(const GeluBackwardArgs& args, ComputeLane lane) {
  const std::int64_t count = args.x.num_elements(), D = args.x.size(-1);
  visit_numbers_and_gradient(
      args.x.dtype, args.dbias.exists() ? args.dbias.dtype : args.x.dtype, [&]<class T, class G>(T, G) {
        visit_row_width<T>(D, [&]<int width>(std::integral_constant<int, width>) {
          using Gradients = GeluGradients<on_device<T>, width, Form>;
          const Gradients of = {.dy = numbers<T>(args.dy),
                                .x = numbers<T>(args.x),
                                .bias = args.bias.exists() ? numbers<T>(args.bias) : nullptr,
                                .dx = numbers<T>(args.dx),
                                .y = args.y.exists() ? numbers<T>(args.y) : nullptr,
                                .D = D,
                                .amaxes = amaxes_of(lane.workspace, args.dx, args.y)};
          if (args.dbias.exists())
            return add_column_sums(of, count / D, D, Totals<on_device<G>, 1>{{numbers<G>(args.dbias)}}, lane);
          const std::int64_t packs = count / width;
          launch(of_threads(packs, lane.stream), gelu_backward_kernel<Gradients>, of, static_cast<unsigned>(D / width),
                 static_cast<unsigned>(packs));
        });
      });
}

}  // namespace

void CudaOps::compute(const GeluArgs& args) {
  const std::int64_t count = args.x.num_elements(), D = args.bias.exists() ? args.x.size(-1) : 0;
  if (count == 0) return;
  const ComputeLane lane = this->lane();
  visit_numbers(args.x.dtype, [&]<class T>(T) {
    visit_row_width<T>(D, [&]<int width>(std::integral_constant<int, width>) {
      const std::int64_t packs = blocks_for(count, width), row = std::max<std::int64_t>(D / width, 1);
      const std::int64_t stride = row * blocks_for(packs, row * packs_in_flight);
      const auto kernel = args.kind == GeluKind::tanh ? gelu_kernel<on_device<T>, width, GeluTanh>
                                                      : gelu_kernel<on_device<T>, width, GeluErf>;
      launch(of_threads(stride, lane.stream), kernel, numbers<T>(args.x),
             args.bias.exists() ? numbers<T>(args.bias) : nullptr, numbers<T>(args.y), static_cast<unsigned>(row),
             static_cast<unsigned>(stride), count, amaxes_of(lane.workspace, args.y));
    });
  });
}

void CudaOps::compute(const GeluBackwardArgs& args) {
  if (args.x.num_elements() == 0) return;
  if (args.kind == GeluKind::tanh)
    compute_gelu_backward<GeluTanh>(args, lane());
  else
    compute_gelu_backward<GeluErf>(args, lane());
}

void CudaOps::compute(const SwigluArgs& args) {
  const std::int64_t count = args.y.num_elements();
  const ComputeLane lane = this->lane();
  visit_numbers(args.y.dtype, [&]<class T>(T) {
    const std::int64_t stride = blocks_for(blocks_for(count, pack_size<T>), packs_in_flight / 2);
    const auto kernel =
        args.kind == GateKind::silu ? swiglu_kernel<on_device<T>, Silu> : swiglu_kernel<on_device<T>, GeluTanh>;
    launch(of_threads(stride, lane.stream), kernel, numbers<T>(args.gate), numbers<T>(args.up), numbers<T>(args.y),
           static_cast<unsigned>(stride), count, amaxes_of(lane.workspace, args.y));
  });
}

void CudaOps::compute(const SwigluBackwardArgs& args) {
  const std::int64_t count = args.dy.num_elements();
  const ComputeLane lane = this->lane();
  visit_numbers(args.dy.dtype, [&]<class T>(T) {
    const SwigluGradients<on_device<T>> of = {numbers<T>(args.dy),
                                              numbers<T>(args.gate),
                                              numbers<T>(args.up),
                                              numbers<T>(args.dgate),
                                              numbers<T>(args.dup),
                                              args.y.exists() ? numbers<T>(args.y) : nullptr,
                                              amaxes_of(lane.workspace, args.dgate, args.dup, args.y)};
    const auto kernel = args.kind == GateKind::silu ? swiglu_backward_kernel<on_device<T>, Silu>
                                                    : swiglu_backward_kernel<on_device<T>, GeluTanh>;
    launch(of_threads(blocks_for(count, pack_size<T>), lane.stream), kernel, of, count);
  });
}

}  // namespace echelon::cuda
