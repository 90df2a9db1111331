// Operations that touch each number once: sums, copies between formats, constants.
#include "cuda/device/lanes.h"
#include "cuda/device/launch.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/numbers.h"
#include "cuda/ops/pending_product.h"

#include "ops/check.h"

namespace echelon::cuda {
namespace {

constexpr int block_threads = 256;

__device__ __forceinline__ std::int64_t element() { return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }

template <class T>
__global__ void add_bias_kernel(T* y, const T* bias, std::int64_t D, std::int64_t count) {
  const std::int64_t i = element();
  if (i < count) y[i] = narrow<T>(widen(y[i]) + widen(bias[i % D]));
}

template <class T, class B>
__global__ void add_kernel(T* out, const T* a, const B* b, std::int64_t count) {
  const std::int64_t i = element();
  if (i < count) out[i] = narrow<T>(widen(a[i]) + widen(b[i]));
}

template <class To, class From>
__global__ void copy_kernel(To* out, const From* x, std::int64_t count) {
  const std::int64_t i = element();
  if (i < count) out[i] = narrow<To>(widen(x[i]));
}

template <class T>
__global__ void fill_kernel(T* out, T value, std::int64_t count) {
  const std::int64_t i = element();
  if (i < count) out[i] = value;
}

template <class T>
__global__ void scale_kernel(T* x, Wide<T> factor, std::int64_t count) {
  const std::int64_t i = element();
  if (i < count) x[i] = narrow<T>(widen(x[i]) * factor);
}

Launch over(std::int64_t count, cudaStream_t stream) {
  return {.num_blocks = blocks_for(count, block_threads), .num_threads = block_threads, .stream = stream};
}

}  // namespace

void CudaOps::add_bias(Tensor y, Tensor bias) {
  check_add_bias(y, bias);
  if (pending_->add_bias(y, bias)) return;
  const std::int64_t count = y.num_elements(), D = bias.num_elements();
  visit_numbers(y.dtype, [&]<class T>(T) { launch(over(count, stream()), add_bias_kernel<on_device<T>>, numbers<T>(y), numbers<T>(bias), D, count); });
}

void CudaOps::add(Tensor out, Tensor a, Tensor b) {
  check_add(out, a, b);
  const std::int64_t count = out.num_elements();
  visit_numbers(out.dtype, [&]<class T>(T) {
    visit_numbers(b.dtype, [&]<class B>(B) {
      launch(over(count, stream()), add_kernel<on_device<T>, on_device<B>>, numbers<T>(out), numbers<T>(a), numbers<B>(b), count);
    });
  });
}

void CudaOps::copy(Tensor out, Tensor x) {
  check_copy(out, x);
  const std::int64_t count = out.num_elements();
  visit_numbers(out.dtype, [&]<class To>(To) {
    visit_numbers(x.dtype, [&]<class From>(From) {
      launch(over(count, stream()), copy_kernel<on_device<To>, on_device<From>>, numbers<To>(out), numbers<From>(x), count);
    });
  });
}

void CudaOps::fill(Tensor out, double value) {
  check_fill(out);
  const std::int64_t count = out.num_elements();
  visit_numbers(out.dtype, [&]<class T>(T) {
    const on_device<T> rounded(static_cast<Wide<on_device<T>>>(value));
    launch(over(count, stream()), fill_kernel<on_device<T>>, numbers<T>(out), rounded, count);
  });
}

void CudaOps::scale(Tensor x, double factor) {
  check_scale(x);
  const std::int64_t count = x.num_elements();
  visit_numbers(x.dtype,
                [&]<class T>(T) { launch(over(count, stream()), scale_kernel<on_device<T>>, numbers<T>(x), static_cast<Wide<on_device<T>>>(factor), count); });
}

}  // namespace echelon::cuda
