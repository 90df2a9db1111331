// Operations that touch each number once: sums, copies between formats, constants. Bound by memory: a thread has
// several accesses of 16 bytes on their way before it waits for the first.
#include "cuda/device/launch.h"
#include "cuda/device/packs.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/numbers.h"
#include "cuda/ops/pending_product.h"

#include <algorithm>

namespace echelon::cuda {
namespace {

constexpr int block_threads = 256, packs_in_flight = 2;

/// A Step computes `width` values from `first` on, of which `present` exist:
///     static constexpr int width; struct Loaded; Loaded load(first, present) const; void store(const Loaded&, first,
///     present) const.
template <class Step>
__global__ void __launch_bounds__(block_threads) each_pack_kernel(Step step, std::int64_t count) {
  constexpr std::int64_t stride = std::int64_t{block_threads} * Step::width;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * stride * packs_in_flight +
                             static_cast<std::int64_t>(threadIdx.x) * Step::width;
  typename Step::Loaded loaded[packs_in_flight];
#pragma unroll
  for (int k = 0; k < packs_in_flight; ++k)
    if (first + k * stride < count) loaded[k] = step.load(first + k * stride, count - first - k * stride);
#pragma unroll
  for (int k = 0; k < packs_in_flight; ++k)
    if (first + k * stride < count) step.store(loaded[k], first + k * stride, count - first - k * stride);
}

template <class Step>
void enqueue_each_pack(const Step& step, std::int64_t count, cudaStream_t stream) {
  launch({.num_blocks = blocks_for(count, std::int64_t{block_threads} * Step::width * packs_in_flight),
          .num_threads = block_threads,
          .stream = stream},
         each_pack_kernel<Step>, step, count);
}

/// Numbers of both formats for a thread: 16 bytes of the narrower one.
template <class T, class U>
constexpr int common_width = std::max(pack_size<T>, pack_size<U>);

template <class T, int columns>
struct AddBias {
  static constexpr int width = columns;
  struct Loaded {
    Pack<T, width> y, bias;
  };
  T* y;
  const T* bias;
  std::int64_t D;

  __device__ Loaded load(std::int64_t first, std::int64_t /*present*/) const {
    return {load_pack<width>(y + first), load_pack<width>(bias + first % D)};
  }
  __device__ void store(const Loaded& of, std::int64_t first, std::int64_t /*present*/) const {
    Pack<T, width> sum;
#pragma unroll
    for (int i = 0; i < width; ++i) sum.at[i] = narrow<T>(widen(of.y.at[i]) + widen(of.bias.at[i]));
    store_pack(y + first, sum);
  }
};

template <class T, class B>
struct Add {
  static constexpr int width = common_width<T, B>;
  struct Loaded {
    Pack<T, width> a;
    Pack<B, width> b;
  };
  T* out;
  const T* a;
  const B* b;

  __device__ Loaded load(std::int64_t first, std::int64_t present) const {
    return {load_pack<width>(a + first, present), load_pack<width>(b + first, present)};
  }
  __device__ void store(const Loaded& of, std::int64_t first, std::int64_t present) const {
    Pack<T, width> sum;
#pragma unroll
    for (int i = 0; i < width; ++i) sum.at[i] = narrow<T>(widen(of.a.at[i]) + widen(of.b.at[i]));
    store_pack(out + first, sum, present);
  }
};

template <class To, class From>
struct Convert {
  static constexpr int width = common_width<To, From>;
  using Loaded = Pack<From, width>;
  To* out;
  const From* x;

  __device__ Loaded load(std::int64_t first, std::int64_t present) const {
    return load_pack<width>(x + first, present);
  }
  __device__ void store(const Loaded& x_k, std::int64_t first, std::int64_t present) const {
    store_pack(out + first, narrow<To>(widen(x_k)), present);
  }
};

template <class T>
struct Scale {
  static constexpr int width = pack_size<T>;
  using Loaded = Pack<T, width>;
  T* x;
  Wide<T> factor;

  __device__ Loaded load(std::int64_t first, std::int64_t present) const {
    return load_pack<width>(x + first, present);
  }
  __device__ void store(const Loaded& x_k, std::int64_t first, std::int64_t present) const {
    Pack<Wide<T>, width> product = widen(x_k);
#pragma unroll
    for (int i = 0; i < width; ++i) product.at[i] *= factor;
    store_pack(x + first, narrow<T>(product), present);
  }
};

template <class T>
struct SoftCap {
  static constexpr int width = pack_size<T>;
  using Loaded = Pack<T, width>;
  T* x;
  Wide<T> cap;

  __device__ Loaded load(std::int64_t first, std::int64_t present) const {
    return load_pack<width>(x + first, present);
  }
  __device__ void store(const Loaded& x_k, std::int64_t first, std::int64_t present) const {
    Pack<Wide<T>, width> capped = widen(x_k);
#pragma unroll
    for (int i = 0; i < width; ++i) capped.at[i] = cap * tanh(capped.at[i] / cap);
    store_pack(x + first, narrow<T>(capped), present);
  }
};

template <class T, class L>
struct SoftCapGradient {
  static constexpr int width = common_width<T, L>;
  struct Loaded {
    Pack<T, width> dx;
    Pack<L, width> y;
  };
  T* dx;
  const L* y;
  Wide<T> cap;

  __device__ Loaded load(std::int64_t first, std::int64_t present) const {
    return {load_pack<width>(dx + first, present), load_pack<width>(y + first, present)};
  }
  __device__ void store(const Loaded& of, std::int64_t first, std::int64_t present) const {
    Pack<T, width> product;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const Wide<T> tanh_i = widen(of.y.at[i]) / cap;
      product.at[i] = narrow<T>(widen(of.dx.at[i]) * (1 - tanh_i * tanh_i));
    }
    store_pack(dx + first, product, present);
  }
};

template <class T>
struct Clip {
  static constexpr int width = pack_size<T>;
  using Loaded = Pack<T, width>;
  T* x;
  Wide<T> limit;

  __device__ Loaded load(std::int64_t first, std::int64_t present) const {
    return load_pack<width>(x + first, present);
  }
  __device__ void store(const Loaded& x_k, std::int64_t first, std::int64_t present) const {
    Pack<Wide<T>, width> clipped = widen(x_k);
#pragma unroll
    for (int i = 0; i < width; ++i)
      clipped.at[i] = clipped.at[i] > limit ? limit : clipped.at[i] < -limit ? -limit : clipped.at[i];
    store_pack(x + first, narrow<T>(clipped), present);
  }
};

template <class T>
struct ClipGradient {
  static constexpr int width = pack_size<T>;
  struct Loaded {
    Pack<T, width> dx, x;
  };
  T* dx;
  const T* x;
  Wide<T> limit;

  __device__ Loaded load(std::int64_t first, std::int64_t present) const {
    return {load_pack<width>(dx + first, present), load_pack<width>(x + first, present)};
  }
  __device__ void store(const Loaded& of, std::int64_t first, std::int64_t present) const {
    Pack<T, width> passed;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const Wide<T> x_i = widen(of.x.at[i]);
      passed.at[i] = x_i < limit && x_i > -limit ? of.dx.at[i] : narrow<T>(Wide<T>(0));
    }
    store_pack(dx + first, passed, present);
  }
};

/// In the format of what it limits.
template <class T>
Wide<on_device<T>> limit_in(double limit) {
  return static_cast<Wide<on_device<T>>>(to<double>(to<T>(limit)));
}

}  // namespace

void CudaOps::compute(const AddBiasArgs& args) {
  const Tensor &y = args.y, &bias = args.bias;
  if (pending_->add_bias(y, bias)) return;
  const std::int64_t count = y.num_elements(), D = bias.num_elements();
  visit_numbers(y.dtype, [&]<class T>(T) {
    visit_row_width<T>(D, [&]<int width>(std::integral_constant<int, width>) {
      enqueue_each_pack(AddBias<on_device<T>, width>{numbers<T>(y), numbers<T>(bias), D}, count, stream());
    });
  });
}

void CudaOps::compute(const AddArgs& args) {
  const Tensor &out = args.out, &a = args.a, &b = args.b;
  if (pending_->add(out, a, b)) return;
  visit_numbers(out.dtype, [&]<class T>(T) {
    visit_numbers(b.dtype, [&]<class B>(B) {
      if constexpr (std::is_same_v<Wide<on_device<T>>, Wide<on_device<B>>>)
        enqueue_each_pack(Add<on_device<T>, on_device<B>>{numbers<T>(out), numbers<T>(a), numbers<B>(b)},
                          out.num_elements(), stream());
    });
  });
}

void CudaOps::compute(const CopyArgs& args) {
  const Tensor &out = args.out, &x = args.x;
  if (out.dtype == x.dtype) {
    if (x.num_bytes() > 0)
      check(cudaMemcpyAsync(out.data, x.data, static_cast<std::size_t>(x.num_bytes()), cudaMemcpyDeviceToDevice,
                            stream()),
            "a copy");
    return;
  }
  visit_numbers(out.dtype, [&]<class To>(To) {
    visit_numbers(x.dtype, [&]<class From>(From) {
      if constexpr (!std::is_same_v<To, From>)
        enqueue_each_pack(Convert<on_device<To>, on_device<From>>{numbers<To>(out), numbers<From>(x)},
                          out.num_elements(), stream());
    });
  });
}

void CudaOps::compute(const ScaleArgs& args) {
  const Tensor& x = args.x;
  visit_numbers(x.dtype, [&]<class T>(T) {
    enqueue_each_pack(Scale<on_device<T>>{numbers<T>(x), static_cast<Wide<on_device<T>>>(args.factor)},
                      x.num_elements(), stream());
  });
}

void CudaOps::compute(const SoftCapArgs& args) {
  const Tensor& x = args.x;
  visit_numbers(x.dtype, [&]<class T>(T) {
    enqueue_each_pack(SoftCap<on_device<T>>{numbers<T>(x), static_cast<Wide<on_device<T>>>(args.cap)}, x.num_elements(),
                      stream());
  });
}

void CudaOps::compute(const SoftCapBackwardArgs& args) {
  visit_numbers(args.dx.dtype, [&]<class T>(T) {
    visit_numbers(args.y.dtype, [&]<class L>(L) {
      using A = Wide<on_device<T>>;
      if constexpr (std::is_same_v<A, Wide<on_device<L>>>)
        enqueue_each_pack(SoftCapGradient<on_device<T>, on_device<L>>{numbers<T>(args.dx), numbers<L>(args.y),
                                                                      static_cast<A>(args.cap)},
                          args.dx.num_elements(), stream());
    });
  });
}

void CudaOps::compute(const ClipArgs& args) {
  visit_numbers(args.x.dtype, [&]<class T>(T) {
    enqueue_each_pack(Clip<on_device<T>>{numbers<T>(args.x), limit_in<T>(args.limit)}, args.x.num_elements(), stream());
  });
}

void CudaOps::compute(const ClipBackwardArgs& args) {
  visit_numbers(args.dx.dtype, [&]<class T>(T) {
    enqueue_each_pack(ClipGradient<on_device<T>>{numbers<T>(args.dx), numbers<T>(args.x), limit_in<T>(args.limit)},
                      args.dx.num_elements(), stream());
  });
}

}  // namespace echelon::cuda
