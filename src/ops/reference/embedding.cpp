// Rows of a table by token, and learned positions. Tokens outside this rank's shard of the table contribute nothing.
#include "ops/reference/reference_ops.h"
#include "ops/visit.h"

namespace echelon {

void ReferenceOps::compute(const EmbeddingArgs& args) {
  visit_float(args.y.dtype, [&](auto t) {
    using T = decltype(t);
    const std::int64_t num_rows = args.w.size(0), D = args.w.size(1);
    for (std::int64_t n = 0; n < args.tokens.num_elements(); ++n) {
      const std::int64_t row = args.tokens.as<std::int32_t>()[n] - args.first_row;
      const bool is_here = row >= 0 && row < num_rows;
      for (std::int64_t d = 0; d < D; ++d)
        args.y.as<T>()[n * D + d] = is_here ? args.w.as<T>()[row * D + d] : to<T>(0.0F);
    }
  });
}

void ReferenceOps::compute(const EmbeddingBackwardArgs& args) {
  visit_pair(args.dy.dtype, args.dw.dtype, [&](auto t, auto g) {
    using T = decltype(t);
    using G = decltype(g);
    using A = Accumulate<T>;
    const std::int64_t num_rows = args.dw.size(0), D = args.dw.size(1);
    for (std::int64_t n = 0; n < args.tokens.num_elements(); ++n) {
      const std::int64_t row = args.tokens.as<std::int32_t>()[n] - args.first_row;
      if (row < 0 || row >= num_rows) continue;
      for (std::int64_t d = 0; d < D; ++d) {
        G& dw = args.dw.as<G>()[row * D + d];
        dw = to<G>(to<A>(dw) + to<A>(args.dy.as<T>()[n * D + d]));
      }
    }
  });
}

namespace {
/// Args: of a sum with learned positions or of its gradient.
template <class Args>
std::int64_t position_of(const Args& args, std::int64_t row) {
  const std::int64_t token = args.first_token + row;
  return args.positions.exists() ? args.positions.template as<std::int32_t>()[token] : token % args.seq_len;
}
}  // namespace

void ReferenceOps::compute(const PositionsArgs& args) {
  visit_float(args.y.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulate<T>;
    const std::int64_t D = args.w.size(1);
    for (std::int64_t i = 0; i < args.y.num_elements(); ++i) {
      const std::int64_t position = position_of(args, i / D);
      args.y.as<T>()[i] = to<T>(to<A>(args.y.as<T>()[i]) + to<A>(args.w.as<T>()[position * D + i % D]));
    }
  });
}

void ReferenceOps::compute(const PositionsBackwardArgs& args) {
  visit_pair(args.dy.dtype, args.dw.dtype, [&](auto t, auto g) {
    using T = decltype(t);
    using G = decltype(g);
    using A = Accumulate<T>;
    const std::int64_t D = args.dw.size(1);
    for (std::int64_t i = 0; i < args.dy.num_elements(); ++i) {
      const std::int64_t position = position_of(args, i / D);
      G& dw = args.dw.as<G>()[position * D + i % D];
      dw = to<G>(to<A>(dw) + to<A>(args.dy.as<T>()[i]));
    }
  });
}

}  // namespace echelon
