// Mixtures of experts: the slots of rows, their permutation and its inverse, and a matmul for each expert.
#include "ops/reference/reference_ops.h"
#include "ops/visit.h"

#include <algorithm>
#include <vector>

namespace echelon {

void ReferenceOps::compute(const ExpertSlotsArgs& args) {
  const std::int64_t R = args.experts.num_elements(), E = args.offsets.size(0) - 1;
  const auto* experts = args.experts.as<std::int32_t>();
  auto *slots = args.slots.as<std::int32_t>(), *offsets = args.offsets.as<std::int32_t>();
  for (std::int64_t i = 0; i < R; ++i) slots[i] = -1;
  std::int32_t next = 0;
  for (std::int64_t e = 0; e < E; ++e) {
    offsets[e] = next;
    for (std::int64_t i = 0; i < R; ++i)
      if (experts[i] - args.first_expert == e) slots[i] = next++;
  }
  offsets[E] = next;
}

void ReferenceOps::compute(const ArrivedSlotsArgs& args) {
  const std::int64_t P = args.of_ranks.size(0), columns = args.of_ranks.size(1), E = args.offsets.size(0) - 1,
                     Q = args.slots.num_elements();
  auto *slots = args.slots.as<std::int32_t>(), *offsets = args.offsets.as<std::int32_t>();
  std::vector<std::int64_t> experts;  // of all rows, in the order in which they come
  for (std::int64_t p = 0; p < P; ++p)
    for (std::int64_t e = 0; e < E; ++e) {
      const std::int32_t* own = args.of_ranks.as<std::int32_t>() + p * columns + args.first_expert + e;
      experts.insert(experts.end(), static_cast<std::size_t>(own[1] - own[0]), e);
    }
  const auto expert_of = [&](std::int64_t row) {
    const std::int64_t at = args.first_row + row;
    return at < std::ssize(experts) ? experts[static_cast<std::size_t>(at)] : -1;
  };
  std::int32_t next = 0;
  std::fill_n(slots, Q, -1);
  for (std::int64_t e = 0; e < E; ++e) {
    offsets[e] = next;
    for (std::int64_t row = 0; row < Q; ++row)
      if (expert_of(row) == e) slots[row] = next++;
  }
  offsets[E] = next;
}

void ReferenceOps::compute(const PermuteToExpertsArgs& args) {
  const std::int64_t k = args.slots.size(1), D = args.x.size(1);
  visit_float(args.x.dtype, [&](auto t) {
    using T = decltype(t);
    for (std::int64_t i = 0; i < args.slots.num_elements(); ++i) {
      const std::int64_t slot = args.slots.as<std::int32_t>()[i];
      if (slot < 0) continue;
      for (std::int64_t d = 0; d < D; ++d) args.y.as<T>()[slot * D + d] = args.x.as<T>()[i / k * D + d];
    }
  });
}

void ReferenceOps::compute(const CombineExpertsArgs& args) {
  const std::int64_t N = args.slots.size(0), k = args.slots.size(1), D = args.out.size(1);
  visit_float(args.y.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulate<T>;
    for (std::int64_t n = 0; n < N; ++n)
      for (std::int64_t d = 0; d < D; ++d) {
        A sum = 0;
        for (std::int64_t i = n * k; i < (n + 1) * k; ++i) {
          const std::int64_t slot = args.slots.as<std::int32_t>()[i];
          if (slot >= 0)
            sum += (args.weights.exists() ? args.weights.as<A>()[i] : A{1}) * to<A>(args.y.as<T>()[slot * D + d]);
        }
        args.out.as<T>()[n * D + d] = to<T>(sum);
      }
  });
}

void ReferenceOps::compute(const CombineExpertsBackwardArgs& args) {
  const std::int64_t k = args.slots.size(1), D = args.dout.size(1);
  visit_float(args.y.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulate<T>;
    for (std::int64_t i = 0; i < args.slots.num_elements(); ++i) {
      const std::int64_t slot = args.slots.as<std::int32_t>()[i];
      const T* dout = args.dout.as<T>() + i / k * D;
      A sum = 0;
      for (std::int64_t d = 0; slot >= 0 && d < D; ++d) sum += to<A>(dout[d]) * to<A>(args.y.as<T>()[slot * D + d]);
      args.dweights.as<A>()[i] = sum;
      for (std::int64_t d = 0; slot >= 0 && d < D; ++d)
        args.dy.as<T>()[slot * D + d] = to<T>(args.weights.as<A>()[i] * to<A>(dout[d]));
    }
  });
}

void ReferenceOps::compute(const GroupedMatmulArgs& args) {
  const std::int64_t K = args.a.size(1), N = args.c.size(1);
  const auto* offsets = args.offsets.as<std::int32_t>();
  visit_float(args.a.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulate<T>;
    for (std::int64_t e = 0; e + 1 < args.offsets.size(0); ++e)
      for (std::int64_t r = offsets[e]; r < offsets[e + 1]; ++r)
        for (std::int64_t n = 0; n < N; ++n) {
          A sum = 0;
          for (std::int64_t p = 0; p < K; ++p)
            sum += to<A>(args.a.as<T>()[r * K + p]) *
                   to<A>(args.w.as<T>()[e * K * N + (args.transpose_w ? n * K + p : p * N + n)]);
          T& c = args.c.as<T>()[r * N + n];
          c = to<T>((args.accumulates ? to<A>(c) : A{0}) + sum);
        }
  });
}

void ReferenceOps::compute(const GroupedMatmulBackwardWeightArgs& args) {
  const std::int64_t F = args.dy.size(1), D = args.x.size(1);
  const auto* offsets = args.offsets.as<std::int32_t>();
  visit_pair(args.dy.dtype, args.dw.dtype, [&](auto t, auto g) {
    using T = decltype(t);
    using G = decltype(g);
    using A = Accumulate<T>;
    for (std::int64_t e = 0; e + 1 < args.offsets.size(0); ++e)
      for (std::int64_t f = 0; f < F; ++f)
        for (std::int64_t d = 0; d < D; ++d) {
          A sum = 0;
          for (std::int64_t r = offsets[e]; r < offsets[e + 1]; ++r)
            sum += to<A>(args.dy.as<T>()[r * F + f]) * to<A>(args.x.as<T>()[r * D + d]);
          G& dw = args.dw.as<G>()[(e * F + f) * D + d];
          dw = to<G>(to<A>(dw) + sum);
        }
  });
}

}  // namespace echelon
