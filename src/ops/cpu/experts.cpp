// Mixtures of experts: a counting sort, permutations of rows, and one matmul per expert. Threads divide tokens or
// matmuls.
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"
#include "ops/visit.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace echelon {
namespace {

constexpr std::int64_t block = 256;  // columns whose sums stay in the first cache

/// Sums of this many addends at a time, which a vector holds; the order is the same whatever the instruction set.
constexpr std::size_t num_partial_sums = 16;

template <class T, class A = Accumulate<T>>
A dot(const T* x, const T* y, std::int64_t size) {
  std::array<A, num_partial_sums> sums{};
  const auto step = static_cast<std::int64_t>(num_partial_sums);
  std::int64_t d = 0;
  for (; d + step <= size; d += step)
    for (std::size_t i = 0; i < num_partial_sums; ++i)
      sums[i] += to<A>(x[d + static_cast<std::int64_t>(i)]) * to<A>(y[d + static_cast<std::int64_t>(i)]);
  A sum = 0;
  for (const A part : sums) sum += part;
  for (; d < size; ++d) sum += to<A>(x[d]) * to<A>(y[d]);
  return sum;
}

template <class T>
void combine(const CombineExpertsArgs& args, std::int64_t n) {
  using A = Accumulate<T>;
  const std::int64_t k = args.slots.size(1), D = args.out.size(1);
  const auto* slots = args.slots.as<std::int32_t>() + n * k;
  const A* weights = args.weights.exists() ? args.weights.as<A>() + n * k : nullptr;
  for (std::int64_t first = 0; first < D; first += block) {
    const std::int64_t columns = std::min(block, D - first);
    std::array<A, static_cast<std::size_t>(block)> sums{};
    for (std::int64_t j = 0; j < k; ++j) {
      if (slots[j] < 0) continue;
      const T* y = args.y.as<T>() + slots[j] * D + first;
      const A weight = weights == nullptr ? A{1} : weights[j];
      for (std::int64_t d = 0; d < columns; ++d) sums[static_cast<std::size_t>(d)] += weight * to<A>(y[d]);
    }
    T* out = args.out.as<T>() + n * D + first;
    for (std::int64_t d = 0; d < columns; ++d) out[d] = to<T>(sums[static_cast<std::size_t>(d)]);
  }
}

template <class T>
void combine_backward(const CombineExpertsBackwardArgs& args, std::int64_t n) {
  using A = Accumulate<T>;
  const std::int64_t k = args.slots.size(1), D = args.dout.size(1);
  const T* dout = args.dout.as<T>() + n * D;
  for (std::int64_t i = n * k; i < (n + 1) * k; ++i) {
    const std::int64_t slot = args.slots.as<std::int32_t>()[i];
    args.dweights.as<A>()[i] = slot < 0 ? A{0} : dot(dout, args.y.as<T>() + slot * D, D);
    if (slot < 0) continue;
    const A weight = args.weights.as<A>()[i];
    T* dy = args.dy.as<T>() + slot * D;
    for (std::int64_t d = 0; d < D; ++d) dy[d] = to<T>(weight * to<A>(dout[d]));
  }
}

template <class T>
void weight_backward(const WeightRowsBackwardArgs& args, std::int64_t i) {
  using A = Accumulate<T>;
  const std::int64_t D = args.x.size(1), slot = args.slots.as<std::int32_t>()[i];
  args.dweights.as<A>()[i] = 0;
  if (slot < 0) return;
  const A weight = args.weights.as<A>()[i];
  const T *dy = args.dy.as<T>() + slot * D, *x = args.x.as<T>() + slot * D;
  T *dx = args.dx.as<T>() + slot * D, *y = args.y.exists() ? args.y.as<T>() + slot * D : nullptr;
  std::array<A, num_partial_sums> sums{};
  for (std::int64_t d = 0; d < D; ++d) {
    const A of_y = to<A>(dy[d]), of_x = to<A>(x[d]);
    sums[static_cast<std::size_t>(d) % num_partial_sums] += of_y * of_x;
    dx[d] = to<T>(weight * of_y);
    if (y != nullptr) y[d] = to<T>(weight * of_x);
  }
  A sum = 0;
  for (const A part : sums) sum += part;
  args.dweights.as<A>()[i] = sum;
}

/// f(e, first row, number of rows) for the experts that have some.
template <class F>
void for_experts(const Tensor& offsets, F&& f) {
  for (std::int64_t e = 0; e + 1 < offsets.size(0); ++e) {
    const std::int64_t first = offsets.as<std::int32_t>()[e], end = offsets.as<std::int32_t>()[e + 1];
    if (end > first) f(e, first, end - first);
  }
}

/// The matrix of expert e.
Tensor matrix_of(const Tensor& w, std::int64_t e) { return w.rows(e, 1).reshaped({w.size(1), w.size(2)}); }

}  // namespace

void CpuOps::compute(const ExpertSlotsArgs& args) {
  const std::int64_t R = args.experts.num_elements(), E = args.offsets.size(0) - 1;
  const auto* experts = args.experts.as<std::int32_t>();
  auto *slots = args.slots.as<std::int32_t>(), *offsets = args.offsets.as<std::int32_t>();
  const auto is_here = [&](std::int64_t e) { return e >= 0 && e < E; };
  std::fill_n(offsets, E + 1, 0);
  for (std::int64_t i = 0; i < R; ++i)
    if (const std::int64_t e = experts[i] - args.first_expert; is_here(e)) ++offsets[e + 1];
  for (std::int64_t e = 0; e < E; ++e) offsets[e + 1] += offsets[e];
  std::vector<std::int32_t> next(offsets, offsets + E);
  for (std::int64_t i = 0; i < R; ++i) {
    const std::int64_t e = experts[i] - args.first_expert;
    slots[i] = is_here(e) ? next[static_cast<std::size_t>(e)]++ : -1;
  }
}

void CpuOps::compute(const ArrivedSlotsArgs& args) {
  const std::int64_t P = args.of_ranks.size(0), columns = args.of_ranks.size(1), E = args.offsets.size(0) - 1,
                     Q = args.slots.num_elements();
  auto *slots = args.slots.as<std::int32_t>(), *offsets = args.offsets.as<std::int32_t>();
  // f(expert, first row of the round, rows) for the rows of each rank and expert that are in the round.
  const auto for_rows = [&](const auto& f) {
    std::int64_t first = -args.first_row;
    for (std::int64_t p = 0; p < P; ++p) {
      const std::int32_t* own = args.of_ranks.as<std::int32_t>() + p * columns + args.first_expert;
      for (std::int64_t e = 0; e < E; ++e) {
        const std::int64_t end = first + own[e + 1] - own[e];
        const std::int64_t begin = std::max<std::int64_t>(first, 0), count = std::min(end, Q) - begin;
        if (count > 0) f(e, begin, count);
        first = end;
      }
    }
  };
  std::fill_n(offsets, E + 1, 0);
  std::fill_n(slots, Q, -1);
  for_rows(
      [&](std::int64_t e, std::int64_t, std::int64_t count) { offsets[e + 1] += static_cast<std::int32_t>(count); });
  for (std::int64_t e = 0; e < E; ++e) offsets[e + 1] += offsets[e];
  std::vector<std::int32_t> next(offsets, offsets + E);
  for_rows([&](std::int64_t e, std::int64_t begin, std::int64_t count) {
    for (std::int64_t row = begin; row < begin + count; ++row) slots[row] = next[static_cast<std::size_t>(e)]++;
  });
}

void CpuOps::compute(const PermuteToExpertsArgs& args) {
  const std::int64_t N = args.slots.size(0), k = args.slots.size(1), D = args.x.size(1),
                     row_bytes = D * size_of(args.x.dtype);
  divide({N, k * D, 1, num_threads_}, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first * k; i < last * k; ++i)
      if (const std::int64_t slot = args.slots.as<std::int32_t>()[i]; slot >= 0 && row_bytes > 0)
        std::memcpy(args.y.data + slot * row_bytes, args.x.data + i / k * row_bytes,
                    static_cast<std::size_t>(row_bytes));
  });
}

void CpuOps::compute(const CombineExpertsArgs& args) {
  visit_float(args.y.dtype, [&](auto t) {
    divide({args.slots.size(0), args.slots.size(1) * args.out.size(1), 1, num_threads_},
           [&](std::int64_t first, std::int64_t last) {
             for (std::int64_t n = first; n < last; ++n) combine<decltype(t)>(args, n);
           });
  });
}

void CpuOps::compute(const CombineExpertsBackwardArgs& args) {
  visit_float(args.y.dtype, [&](auto t) {
    divide({args.slots.size(0), args.slots.size(1) * args.dout.size(1), 1, num_threads_},
           [&](std::int64_t first, std::int64_t last) {
             for (std::int64_t n = first; n < last; ++n) combine_backward<decltype(t)>(args, n);
           });
  });
}

void CpuOps::compute(const WeightRowsArgs& args) {
  const std::int64_t D = args.x.size(1);
  visit_float(args.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulate<T>;
    divide({args.slots.num_elements(), D, 1, num_threads_}, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) {
        const std::int64_t slot = args.slots.as<std::int32_t>()[i];
        if (slot < 0) continue;
        const A weight = args.weights.as<A>()[i];
        const T* x = args.x.as<T>() + slot * D;
        T* y = args.y.as<T>() + slot * D;
        for (std::int64_t d = 0; d < D; ++d) y[d] = to<T>(weight * to<A>(x[d]));
      }
    });
  });
}

void CpuOps::compute(const WeightRowsBackwardArgs& args) {
  visit_float(args.x.dtype, [&](auto t) {
    divide({args.slots.num_elements(), args.x.size(1), 1, num_threads_}, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) weight_backward<decltype(t)>(args, i);
    });
  });
}

void CpuOps::compute(const GroupedMatmulArgs& args) {
  std::vector<MatmulArgs> products;
  for_experts(args.offsets, [&](std::int64_t e, std::int64_t first, std::int64_t count) {
    expert_flops_ += 2 * count * args.a.size(1) * args.c.size(1);
    products.push_back({.a = args.a.rows(first, count),
                        .b = matrix_of(args.w, e),
                        .c = args.c.rows(first, count),
                        .transpose_b = args.transpose_w,
                        .accumulates = args.accumulates});
  });
  multiply_all(products);
}

void CpuOps::compute(const GroupedMatmulBackwardWeightArgs& args) {
  std::vector<MatmulArgs> products;
  for_experts(args.offsets, [&](std::int64_t e, std::int64_t first, std::int64_t count) {
    expert_flops_ += 2 * count * args.dy.size(1) * args.x.size(1);
    products.push_back({.a = args.dy.rows(first, count),
                        .b = args.x.rows(first, count),
                        .c = matrix_of(args.dw, e),
                        .transpose_a = true,
                        .accumulates = true});
  });
  multiply_all(products);
}

}  // namespace echelon
