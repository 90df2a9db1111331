// Gradients of biases: sums over rows.
#include "cuda/ops/column_sums.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/numbers.h"
#include "cuda/ops/pending_product.h"
#include "cuda/ops/segments.h"

namespace echelon::cuda {
namespace {

template <class T, int columns>
struct ColumnOfNumbers {
  using Number = T;
  using Loaded = Pack<T, columns>;
  static constexpr int width = columns, num_sums = 1;

  const T* dy;
  std::int64_t D;

  __device__ Loaded load(std::int64_t row, std::int64_t column) const {
    return load_pack<width>(dy + row * D + column);
  }
  __device__ void add(const Loaded& dy_i, std::int64_t /*row*/, std::int64_t /*column*/,
                      Wide<T> (&sums)[1][width]) const {
#pragma unroll
    for (int i = 0; i < width; ++i) sums[0][i] += widen(dy_i.at[i]);
  }
};

constexpr int block_threads = 256;

template <class G>
using Biases = Segments<G*, ProductCalls::most_waiting>;

template <class G>
__global__ void __launch_bounds__(block_threads) add_sums_kernel(Biases<G> biases, const G* sums, std::int64_t count) {
  const int block = static_cast<int>(blockIdx.x), i = biases.of_block(block);
  const std::int64_t at = std::int64_t{block - biases.first_block[i]} * block_threads + threadIdx.x;
  if (at < count) biases.at[i][at] = narrow<G>(widen(biases.at[i][at]) + widen(sums[i * count + at]));
}

}  // namespace

void CudaOps::add_sums(const std::vector<Tensor>& dbias, const Tensor& sums) {
  const std::int64_t count = sums.size(1);
  visit_numbers(sums.dtype, [&]<class G>(G) {
    Biases<on_device<G>> biases;
    for (const Tensor& each : dbias) biases.add(numbers<G>(each), blocks_for(count, block_threads));
    launch({.num_blocks = biases.num_blocks(), .num_threads = block_threads, .stream = stream()},
           add_sums_kernel<on_device<G>>, biases, numbers<G>(sums), count);
  });
}

void CudaOps::compute(const BiasBackwardArgs& args) {
  const Tensor &dy = args.dy, &dbias = args.dbias;
  if (pending_->column_sums(dy, dbias)) return;
  const std::int64_t D = dbias.num_elements(), N = D == 0 ? 0 : dy.num_elements() / D;
  visit_numbers_and_gradient(dy.dtype, dbias.dtype, [&]<class T, class G>(T, G) {
    visit_row_width<T>(D, [&]<int width>(std::integral_constant<int, width>) {
      const ColumnOfNumbers<on_device<T>, width> summand = {numbers<T>(dy), D};
      add_column_sums(summand, N, D, Totals<on_device<G>, 1>{{numbers<G>(dbias)}}, lane());
    });
  });
}

}  // namespace echelon::cuda
