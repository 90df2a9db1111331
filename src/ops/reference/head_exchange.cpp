// Rows and heads in the order of context parallelism's exchanges (formulas: ops/operations/head_exchange.h).
#include "ops/reference/reference_ops.h"
#include "ops/visit.h"

namespace echelon {

void ReferenceOps::compute(const SplitHeadsArgs& args) {
  const std::int64_t N = args.x.size(0), P = args.x.size(1), W = args.x.size(2);
  visit_float(args.x.dtype, [&](auto t) {
    using T = decltype(t);
    for (std::int64_t j = 0; j < P * args.copies; ++j)
      for (std::int64_t n = 0; n < N; ++n)
        for (std::int64_t w = 0; w < W; ++w)
          args.y.as<T>()[(j * N + n) * W + w] = args.x.as<T>()[(n * P + j / args.copies) * W + w];
  });
}

void ReferenceOps::compute(const JoinHeadsArgs& args) {
  const std::int64_t N = args.y.size(0), P = args.y.size(1), W = args.y.size(2);
  visit_float(args.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulate<T>;
    for (std::int64_t n = 0; n < N; ++n)
      for (std::int64_t p = 0; p < P; ++p)
        for (std::int64_t w = 0; w < W; ++w) {
          A sum = 0;
          for (std::int64_t r = 0; r < args.copies; ++r)
            sum += to<A>(args.x.as<T>()[((p * args.copies + r) * N + n) * W + w]);
          args.y.as<T>()[(n * P + p) * W + w] = to<T>(sum);
        }
  });
}

void ReferenceOps::compute(const GatherRowsArgs& args) {
  const std::int64_t N = args.y.size(0), W = args.y.size(1);
  visit_float(args.x.dtype, [&](auto t) {
    using T = decltype(t);
    for (std::int64_t i = 0; i < N; ++i) {
      const std::int64_t row = args.index.as<std::int32_t>()[i];
      for (std::int64_t w = 0; w < W; ++w) args.y.as<T>()[i * W + w] = row < 0 ? T{} : args.x.as<T>()[row * W + w];
    }
  });
}

}  // namespace echelon
