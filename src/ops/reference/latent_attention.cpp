// Keys and values of multi-head latent attention (formulas: ops/operations/latent_attention.h).
#include "ops/reference/reference_ops.h"
#include "ops/visit.h"

namespace echelon {

void ReferenceOps::compute(const ExpandLatentsArgs& args) {
  const std::int64_t N = args.k.size(0), H = args.k.size(1), C = args.k.size(2), R = args.rope.size(1), P = C - R,
                     W = args.x.size(2);
  visit_float(args.x.dtype, [&](auto t) {
    using T = decltype(t);
    for (std::int64_t row = 0; row < N * H; ++row)
      for (std::int64_t c = 0; c < C; ++c) {
        const T* x = args.x.as<T>() + row * W;
        args.k.as<T>()[row * C + c] = c < R ? args.rope.as<T>()[row / H * R + c] : x[c - R];
        args.v.as<T>()[row * C + c] = P + c < W ? x[P + c] : T{};
      }
  });
}

void ReferenceOps::compute(const ExpandLatentsBackwardArgs& args) {
  const std::int64_t N = args.dk.size(0), H = args.dk.size(1), C = args.dk.size(2), R = args.drope.size(1), P = C - R,
                     W = args.dx.size(2);
  visit_float(args.dk.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulate<T>;
    for (std::int64_t row = 0; row < N * H; ++row)
      for (std::int64_t c = 0; c < W; ++c)
        args.dx.as<T>()[row * W + c] = c < P ? args.dk.as<T>()[row * C + R + c] : args.dv.as<T>()[row * C + c - P];
    for (std::int64_t n = 0; n < N; ++n)
      for (std::int64_t c = 0; c < R; ++c) {
        A sum = 0;
        for (std::int64_t h = 0; h < H; ++h) sum += to<A>(args.dk.as<T>()[(n * H + h) * C + c]);
        args.drope.as<T>()[n * R + c] = to<T>(sum);
      }
  });
}

void ReferenceOps::compute(const ResizeRowsArgs& args) {
  const std::int64_t M = args.x.size(0) * args.x.size(1), from = args.x.size(2), width = args.y.size(2);
  visit_float(args.x.dtype, [&](auto t) {
    using T = decltype(t);
    for (std::int64_t i = 0; i < M; ++i)
      for (std::int64_t c = 0; c < width; ++c)
        args.y.as<T>()[i * width + c] = c < from ? args.x.as<T>()[i * from + c] : T{};
  });
}

}  // namespace echelon
