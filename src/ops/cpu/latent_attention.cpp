// Keys and values of multi-head latent attention: one pass over memory each. Threads divide the tokens or rows.
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"
#include "ops/visit.h"

#include <algorithm>
#include <vector>

namespace echelon {

void CpuOps::compute(const ExpandLatentsArgs& args) {
  const std::int64_t N = args.k.size(0), H = args.k.size(1), C = args.k.size(2), R = args.rope.size(1), P = C - R,
                     W = args.x.size(2), V = W - P;
  visit_float(args.x.dtype, [&](auto t) {
    using T = decltype(t);
    divide({N, H * (C + W), 1, num_threads_}, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first * H; row < last * H; ++row) {
        const T *x = args.x.as<T>() + row * W, *rope = args.rope.as<T>() + row / H * R;
        T *k = args.k.as<T>() + row * C, *v = args.v.as<T>() + row * C;
        std::copy_n(x, P, std::copy_n(rope, R, k));
        std::fill_n(std::copy_n(x + P, V, v), C - V, T{});
      }
    });
  });
}

void CpuOps::compute(const ExpandLatentsBackwardArgs& args) {
  const std::int64_t N = args.dk.size(0), H = args.dk.size(1), C = args.dk.size(2), R = args.drope.size(1), P = C - R,
                     W = args.dx.size(2);
  visit_float(args.dk.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulate<T>;
    divide({N, H * (C + W), 1, num_threads_}, [&](std::int64_t first, std::int64_t last) {
      std::vector<A> sums(static_cast<std::size_t>(R));
      for (std::int64_t n = first; n < last; ++n) {
        std::ranges::fill(sums, A(0));
        for (std::int64_t row = n * H; row < (n + 1) * H; ++row) {
          const T *dk = args.dk.as<T>() + row * C, *dv = args.dv.as<T>() + row * C;
          std::copy_n(dv, W - P, std::copy_n(dk + R, P, args.dx.as<T>() + row * W));
          for (std::int64_t c = 0; c < R; ++c) sums[static_cast<std::size_t>(c)] += to<A>(dk[c]);
        }
        for (std::int64_t c = 0; c < R; ++c) args.drope.as<T>()[n * R + c] = to<T>(sums[static_cast<std::size_t>(c)]);
      }
    });
  });
}

void CpuOps::compute(const ResizeRowsArgs& args) {
  const std::int64_t num_rows = args.x.size(0) * args.x.size(1), from = args.x.size(2), width = args.y.size(2),
                     kept = std::min(from, width);
  visit_float(args.x.dtype, [&](auto t) {
    using T = decltype(t);
    divide({num_rows, width, 1, num_threads_}, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i)
        std::fill_n(std::copy_n(args.x.as<T>() + i * from, kept, args.y.as<T>() + i * width), width - kept, T{});
    });
  });
}

}  // namespace echelon
