#include "ops/check.h"
#include "ops/checker.h"

namespace echelon {
namespace {

void check_float8(const ArgumentChecker& must, const MatmulArgs& args, std::int64_t n, std::int64_t k) {
  const bool both = args.is_float8() && args.b_format != OperandFormat::own,
             both_e5m2 = args.a_format == OperandFormat::float8_e5m2 && args.a_format == args.b_format;
  must.that(both && !both_e5m2, "b", args.b, "be rounded to float8 if and only if a is, not both to e5m2");
  constexpr std::int64_t unit = 16;  // what tensor cores take at a time
  must.that(n % unit == 0 && k % unit == 0, "b", args.b, "have sizes that are multiples of 16");
  must.that(!args.transpose_a || args.a.size(1) % unit == 0, "a", args.a, "have sizes that are multiples of 16");
  must.dtype("scratch", args.scratch, DType::int32);
  must.count("scratch", args.scratch, float8_scratch_size(args.a.num_elements(), args.b.num_elements()));
}

}  // namespace

void check(const MatmulArgs& args) {
  const ArgumentChecker must("matmul");
  must.dims("a", args.a, 2);
  must.dims("b", args.b, 2);
  must.dims("c", args.c, 2);
  must.computes("a", args.a);
  must.dtype("b", args.b, args.a.dtype);
  must.gradient("c", args.c, args.a.dtype);
  const auto m = args.a.size(args.transpose_a ? 1 : 0), k = args.a.size(args.transpose_a ? 0 : 1),
             n = args.b.size(args.transpose_b ? 0 : 1);
  if (args.b.size(args.transpose_b ? 1 : 0) != k)
    must.that(false, "b", args.b, fmt::format("share the inner size {} with a {}", k, to_string(args.a.sizes)));
  if (args.c.sizes != Sizes{m, n}) must.that(false, "c", args.c, fmt::format("be [{}, {}]", m, n));
  if (args.is_float8() || args.b_format != OperandFormat::own) check_float8(must, args, n, k);
}

void check_add_bias(Tensor y, Tensor bias) {
  const ArgumentChecker must("add_bias");
  must.matrix("y", y);
  must.count("bias", bias, num_columns(y));
  must.dtype("bias", bias, y.dtype);
}

void check_bias_backward(Tensor dy, Tensor dbias) {
  const ArgumentChecker must("bias_backward");
  must.matrix("dy", dy);
  must.count("dbias", dbias, num_columns(dy));
  must.gradient("dbias", dbias, dy.dtype);
}

}  // namespace echelon
