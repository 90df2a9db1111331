// Rows of a table by token, and learned positions. Backward passes divide columns over threads, so that every row is
// summed in the order of the tokens.
#include "ops/cpu/targets.h"
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/embedding.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/lanes-inl.h"
#include "ops/cpu/parallel.h"

#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

/// into[row_of(n)] += from[n] for all n, of rows with D columns; a row_of below zero is skipped.
template <class Into, class From, class RowOf>
HWY_INLINE void scatter_add(Into* into, const From* from, const Sizes& from_ND, int num_threads, RowOf row_of) {
  const std::int64_t N = from_ND[0], D = from_ND[1];
  divide({D, N, 64, num_threads}, [=](std::int64_t first, std::int64_t last) HWY_ATTR {
    for (std::int64_t n = 0; n < N; ++n) {
      const std::int64_t row = row_of(n);
      if (row < 0) continue;
      Into* x = into + row * D;
      const From* y = from + n * D;
      for_lanes<Accumulate<From>>(first, last, [=](auto lanes, std::int64_t i) HWY_ATTR {
        lanes.store(hn::Add(lanes.load(x + i), lanes.load(y + i)), x + i);
      });
    }
  });
}

void EmbeddingBackward(const EmbeddingBackwardArgs& args, int num_threads) {
  visit_pair(args.dy.dtype, args.dw.dtype, [&](auto t, auto g) HWY_ATTR {
    using T = decltype(t);
    using G = decltype(g);
    const std::int32_t* tokens = args.tokens.as<std::int32_t>();
    const std::int64_t first_row = args.first_row, num_rows = args.dw.size(0);
    scatter_add(args.dw.as<G>(), args.dy.as<T>(), {args.tokens.num_elements(), args.dw.size(1)}, num_threads,
                [=](std::int64_t n) {
                  const std::int64_t row = tokens[n] - first_row;
                  return row < num_rows ? row : -1;
                });
  });
}

/// Of a sum with learned positions, or of its gradient.
template <class Args>
HWY_INLINE auto position_of_row(const Args& args) {
  const auto* positions = args.positions.exists() ? args.positions.template as<std::int32_t>() : nullptr;
  return [positions, first_token = args.first_token, seq_len = args.seq_len](std::int64_t n) -> std::int64_t {
    return positions != nullptr ? positions[first_token + n] : (first_token + n) % seq_len;
  };
}

void PositionsBackward(const PositionsBackwardArgs& args, int num_threads) {
  visit_pair(args.dy.dtype, args.dw.dtype, [&](auto t, auto g) HWY_ATTR {
    using T = decltype(t);
    using G = decltype(g);
    const std::int64_t D = args.dw.size(1), N = D == 0 ? 0 : args.dy.num_elements() / D;
    scatter_add(args.dw.as<G>(), args.dy.as<T>(), {N, D}, num_threads, position_of_row(args));
  });
}

void AddPositions(const PositionsArgs& args, int num_threads) {
  visit_float(args.y.dtype, [&](auto t) HWY_ATTR {
    using T = decltype(t);
    const std::int64_t D = args.w.size(1), N = D == 0 ? 0 : args.y.num_elements() / D;
    const auto position = position_of_row(args);
    divide({N, D, 1, num_threads}, [&](std::int64_t first, std::int64_t last) HWY_ATTR {
      for (std::int64_t n = first; n < last; ++n) {
        T* y = args.y.as<T>() + n * D;
        const T* w = args.w.as<T>() + position(n) * D;
        for_lanes<Accumulate<T>>(0, D, [=](auto lanes, std::int64_t i) HWY_ATTR {
          lanes.store(hn::Add(lanes.load(y + i), lanes.load(w + i)), y + i);
        });
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace echelon {

HWY_EXPORT(EmbeddingBackward);
HWY_EXPORT(PositionsBackward);
HWY_EXPORT(AddPositions);

void CpuOps::compute(const EmbeddingArgs& args) {
  const std::int64_t num_rows = args.w.size(0), D = args.w.size(1), row_bytes = D * size_of(args.w.dtype);
  divide({args.tokens.num_elements(), D, 1, num_threads_}, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t n = first; n < last; ++n) {
      const std::int64_t row = args.tokens.as<std::int32_t>()[n] - args.first_row;
      std::byte* y = args.y.data + n * row_bytes;
      if (row >= 0 && row < num_rows) {
        std::memcpy(y, args.w.data + row * row_bytes, static_cast<std::size_t>(row_bytes));
      } else {
        std::memset(y, 0, static_cast<std::size_t>(row_bytes));
      }
    }
  });
}

void CpuOps::compute(const EmbeddingBackwardArgs& args) { HWY_DYNAMIC_DISPATCH(EmbeddingBackward)(args, num_threads_); }

void CpuOps::compute(const PositionsArgs& args) { HWY_DYNAMIC_DISPATCH(AddPositions)(args, num_threads_); }

void CpuOps::compute(const PositionsBackwardArgs& args) { HWY_DYNAMIC_DISPATCH(PositionsBackward)(args, num_threads_); }

}  // namespace echelon
#endif
