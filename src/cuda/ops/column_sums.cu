// Gradients of biases: sums over rows.
#include "cuda/ops/column_sums.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/numbers.h"

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

}  // namespace

void CudaOps::compute(const BiasBackwardArgs& args) {
  const Tensor &dy = args.dy, &dbias = args.dbias;
  if (add_fused_column_sums(dy, dbias)) return;
  const std::int64_t D = dbias.num_elements(), N = D == 0 ? 0 : dy.num_elements() / D;
  visit_numbers_and_gradient(dy.dtype, dbias.dtype, [&]<class T, class G>(T, G) {
    visit_row_width<T>(D, [&]<int width>(std::integral_constant<int, width>) {
      const ColumnOfNumbers<on_device<T>, width> summand = {numbers<T>(dy), D};
      add_column_sums(summand, N, D, Totals<on_device<G>, 1>{{numbers<G>(dbias)}}, lane());
    });
  });
}

}  // namespace echelon::cuda
