// c[i, j] = sum_p op(a)[i, p] op(b)[p, j]
#include "ops/float8.h"
#include "ops/reference/reference_ops.h"
#include "ops/visit.h"

#include <vector>

namespace echelon {
namespace {

template <class T, class C>
void multiply(const MatmulArgs& args) {
  using A = Accumulate<T>;
  const T *a = args.a.as<T>(), *b = args.b.as<T>();
  C* c = args.c.as<C>();
  const std::int64_t M = args.c.size(0), N = args.c.size(1), K = args.a.size(args.transpose_a ? 0 : 1);
  for (std::int64_t i = 0; i < M; ++i) {
    for (std::int64_t j = 0; j < N; ++j) {
      A sum = 0;
      for (std::int64_t p = 0; p < K; ++p) {
        const T x = args.transpose_a ? a[p * M + i] : a[i * K + p];
        const T y = args.transpose_b ? b[j * K + p] : b[p * N + j];
        sum += to<A>(x) * to<A>(y);
      }
      const A before = args.accumulates ? to<A>(c[i * N + j]) : A{0};
      c[i * N + j] = to<C>(before + sum);
    }
  }
}

}  // namespace

void ReferenceOps::compute(const MatmulArgs& args) {
  if (args.is_float8()) {
    std::vector<std::byte> a(static_cast<std::size_t>(args.a.num_bytes())),
        b(static_cast<std::size_t>(args.b.num_bytes()));
    MatmulArgs rounded = args;
    rounded.a.data = a.data();
    rounded.b.data = b.data();
    rounded.a_format = rounded.b_format = OperandFormat::own;
    round_to_float8(rounded.a, args.a, args.a_format);
    round_to_float8(rounded.b, args.b, args.b_format);
    return matmul(rounded);
  }
  visit_pair(args.a.dtype, args.c.dtype, [&](auto t, auto c) { multiply<decltype(t), decltype(c)>(args); });
}

}  // namespace echelon
