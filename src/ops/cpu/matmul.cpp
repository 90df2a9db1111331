// Matmuls: float64 and float32 by OpenBLAS, bfloat16 and float16 by our own kernels (gemm.h), which can do float32 too
// (product_choice.h).
#include "base/team.h"
#include "ops/cpu/blas.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/gemm_grouped.h"
#include "ops/cpu/gemm_kernels.h"
#include "ops/cpu/scratch.h"
#include "ops/float8.h"

#include <algorithm>
#include <cstring>

namespace echelon {
namespace {

/// A split of c into shares at multiples of `grain` rows or columns. The last share has the remainder, as in the whole.
struct Cut {
  std::int64_t size = 0, grain = 1, num_shares = 1;

  [[nodiscard]] std::int64_t border(std::int64_t share) const {
    if (share == num_shares) return size;
    return (size * share / num_shares + grain / 2) / grain * grain;
  }
  [[nodiscard]] std::int64_t largest_share() const {
    std::int64_t largest = 0;
    for (std::int64_t share = 0; share < num_shares; ++share)
      largest = std::max(largest, border(share + 1) - border(share));
    return largest;
  }
};

/// What the largest share costs in multiplications: its own, and the packing of both factors, of which every share
/// packs one in whole.
std::int64_t cost(const Cut& cut, std::int64_t other_size, std::int64_t k) {
  constexpr std::int64_t packing = 16;  // multiplications in the time that it takes to pack a number
  return cut.largest_share() * other_size * k + packing * (cut.largest_share() + other_size) * k;
}

/// A matmul on several threads: each takes a range of c's rows or columns, and the bits stay those of one thread
/// (Blas::grains; OpenBLAS's own division changes them for some sizes). Shares stay large enough to be computed by the
/// same kernels as the whole.
template <class T>
void gemm(const Blas& blas, const GemmArgs<T>& g, int num_threads) {
  constexpr std::int64_t smallest_share = 1 << 24;  // multiplications
  const auto grains = blas.grains<T>();
  const std::int64_t num_threads_now = Team::num_threads_now(num_threads);
  const auto cut_of = [&](std::int64_t size, std::int64_t grain) {
    const std::int64_t most = grain == 0 ? 1 : std::min(size / grain, g.m * g.n * g.k / smallest_share);
    return Cut{size, std::max<std::int64_t>(grain, 1), std::clamp<std::int64_t>(most, 1, num_threads_now)};
  };
  const Cut rows = cut_of(g.m, grains.rows), columns = cut_of(g.n, grains.columns);
  const bool by_rows = cost(rows, g.n, g.k) <= cost(columns, g.m, g.k);
  const Cut& cut = by_rows ? rows : columns;
  if (cut.num_shares == 1) return blas.gemm(g);
  auto multiply_share = [&](int share) {
    const std::int64_t first = cut.border(share), last = cut.border(share + 1);
    GemmArgs<T> part = g;
    if (by_rows) {
      part.a += first * (g.transpose_a ? 1 : g.lda);
      part.c += first * g.ldc;
      part.m = last - first;
    } else {
      part.b += first * (g.transpose_b ? g.ldb : 1);
      part.c += first;
      part.n = last - first;
    }
    blas.gemm(part);
  };
  Team::of_this_thread(num_threads).run(static_cast<int>(cut.num_shares), multiply_share);
}

struct Product {
  std::int64_t M, N, K;
  std::int64_t lda, ldb;
  int num_threads;
};

template <class T>
void multiply_in_blas(const Blas& blas, const MatmulArgs& args, const Product& p) {
  gemm(blas,
       GemmArgs<T>{.a = args.a.as<T>(),
                   .b = args.b.as<T>(),
                   .c = args.c.as<T>(),
                   .m = p.M,
                   .n = p.N,
                   .k = p.K,
                   .lda = p.lda,
                   .ldb = p.ldb,
                   .ldc = p.N,
                   .transpose_a = args.transpose_a,
                   .transpose_b = args.transpose_b,
                   .beta = args.accumulates ? T{1} : T{0}},
       p.num_threads);
}

GemmProduct packed_product(const MatmulArgs& args, const Product& p) {
  return {.a = {args.a.data, p.lda, args.transpose_a},
          .b = {args.b.data, p.ldb, args.transpose_b},
          .c = args.c.data,
          .c_stride = p.N,
          .c_dtype = args.c.dtype,
          .m = p.M,
          .n = p.N,
          .k = p.K,
          .accumulates = args.accumulates};
}

Product product_of(const MatmulArgs& args, int num_threads) {
  const std::int64_t M = args.c.size(0), N = args.c.size(1), K = args.a.size(args.transpose_a ? 0 : 1);
  return {M, N, K, args.transpose_a ? M : K, args.transpose_b ? K : N, num_threads};
}

/// Whether nothing is multiplied.
bool is_empty(const MatmulArgs& args) {
  return args.c.num_elements() == 0 || args.a.size(args.transpose_a ? 0 : 1) == 0;
}

}  // namespace

// Every float8 value is a value of every other dtype too, so rounded operands are multiplied as usual. Rows of a, which
// tokens have, are rounded some at a time: rows of c are, or, where k are tokens, a part of the sums.
void CpuOps::multiply_float8(const MatmulArgs& args) {
  if (is_empty(args)) return multiply(args);
  struct OfA;
  struct OfB;
  constexpr std::int64_t rows_at_once = 768;  // blocks of k of our kernels divide it
  const bool sums_rows = args.transpose_a,
             is_divided = !sums_rows || (!args.transpose_b && !is_half_dtype(args.c.dtype));
  const Float8Rounding of_a = float8_rounding_of(args.a, args.a_format),
                       of_b = float8_rounding_of(args.b, args.b_format);
  const std::int64_t num_rows = args.a.size(0), most = is_divided ? std::min(rows_at_once, num_rows) : num_rows;
  const auto room_of = [](const Tensor& x, std::int64_t rows) { return rows * x.size(1) * size_of(x.dtype); };
  const std::int64_t rows_of_b = sums_rows && is_divided ? most : args.b.size(0);
  Scratch<std::byte, OfA> room_for_a(room_of(args.a, most));
  Scratch<std::byte, OfB> room_for_b(room_of(args.b, rows_of_b));
  std::byte* const a = room_for_a.take(room_of(args.a, most));
  std::byte* const b = room_for_b.take(room_of(args.b, rows_of_b));
  const auto rounded = [](std::byte* room, Tensor x, const Float8Rounding& rounding) {
    Tensor out = x;
    out.data = room;
    round_to_float8(out, x, rounding);
    return out;
  };
  MatmulArgs part = args;
  part.a_format = part.b_format = OperandFormat::own;
  if (!sums_rows) part.b = rounded(b, args.b, of_b);
  for (std::int64_t first = 0; first < num_rows; first += most) {
    const std::int64_t count = std::min(most, num_rows - first);
    part.a = rounded(a, args.a.rows(first, count), of_a);
    if (!sums_rows) {
      part.c = args.c.rows(first, count);
    } else {
      part.b = rounded(b, is_divided ? args.b.rows(first, count) : args.b, of_b);
      part.accumulates = args.accumulates || first > 0;
    }
    multiply(part);
  }
}

void CpuOps::compute(const MatmulArgs& args) {
  const std::int64_t M = args.c.size(0), N = args.c.size(1), K = args.a.size(args.transpose_a ? 0 : 1);
  ++matmul_counts_[{M, N, K}];
  args.is_float8() ? multiply_float8(args) : multiply(args);
}

const GemmKernels* CpuOps::kernels_of(DType dtype) const {
  switch (dtype) {
    case DType::float16: return &widening_kernels(DType::float16);
    case DType::bfloat16: return &bfloat16_kernels_;
    case DType::float32: return float32_kernels_;
    default: return nullptr;
  }
}

void CpuOps::multiply(const MatmulArgs& args) {
  if (is_empty(args)) {
    const std::int64_t num_bytes = args.accumulates ? 0 : args.c.num_bytes();
    if (num_bytes > 0) std::memset(args.c.data, 0, static_cast<std::size_t>(num_bytes));
    return;
  }
  const Product product = product_of(args, num_threads_);
  if (const GemmKernels* kernels = kernels_of(args.a.dtype))
    return echelon::multiply(*kernels, packed_product(args, product), num_threads_);
  if (args.a.dtype == DType::float64) return multiply_in_blas<double>(blas_, args, product);
  multiply_in_blas<float>(blas_, args, product);
}

/// OpenBLAS packs each weight for its few rows, and divides each small matmul among threads. So experts have our
/// kernels whatever dense matmuls take (zen3: docs/results/performance.md).
void CpuOps::multiply_all(const std::vector<MatmulArgs>& all) {
  if (all.empty()) return;
  const DType dtype = all.front().a.dtype;
  const GemmKernels* kernels = dtype == DType::float32 ? &float32_kernels() : kernels_of(dtype);
  if (kernels == nullptr || is_empty(all.front())) {
    for (const MatmulArgs& args : all) multiply(args);
    return;
  }
  std::vector<GemmProduct> products;
  for (const MatmulArgs& args : all) products.push_back(packed_product(args, product_of(args, num_threads_)));
  echelon::multiply_all(*kernels, products, num_threads_);
}

}  // namespace echelon
