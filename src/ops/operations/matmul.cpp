#include "ops/operations/matmul.h"

#include "ops/checker.h"
#include "ops/description.h"
#include "ops/sample.h"
#include "types/rules.h"

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
OpCost cost(const MatmulArgs& args) {
  const std::int64_t m = args.c.size(0), n = args.c.size(1), k = args.a.size(args.transpose_a ? 0 : 1);
  const std::int64_t c_bytes = args.c.num_bytes() * (args.accumulates ? 2 : 1);
  // Float8: an operand is read for its largest number and once more to be rounded, and then written and read in 8 bits.
  const std::int64_t rounding_bytes =
      args.is_float8() ? bytes_of(args.a, args.b) + 2 * (args.a.num_elements() + args.b.num_elements()) : 0;
  return {.m = m, .n = n, .k = k, .flops = 2 * m * n * k, .bytes = bytes_of(args.a, args.b) + rounding_bytes + c_bytes};
}
Operands operands_of(const MatmulArgs& args) {
  if (args.accumulates) return {args.a.dtype, {args.a, args.b, args.c}, existing({args.scratch})};
  return {args.a.dtype, {args.a, args.b}, existing({args.c, args.scratch})};
}
void infer(Inference& call, const MatmulArgs& args) {
  const Operand a = call.read("a", args.a), b = call.read("b", args.b);
  const MatrixFactor left = {a, args.transpose_a ? 0 : 1, args.transpose_a ? 1 : 0},
                     right = {b, args.transpose_b ? 1 : 0, args.transpose_b ? 0 : 1};
  LayoutType c;
  if (args.is_float8())  // rounded addends are not the addends of what is rounded
    for (const TypeAxis axis : call.axes())
      for (const Operand& operand : {a, b}) call.require_complete(operand, axis);
  for (const TypeAxis axis : call.axes()) c[axis] = product(call, axis, left, right, args.c);
  args.accumulates ? call.add_to("c", args.c, c) : call.write(args.c, c);
}
void sample(SampleOperands& s, MatmulArgs& args) {
  if (!s.is_weight_gradient())
    args = {.a = s.x({s.m(), s.k()}), .b = s.x({s.n(), s.k()}), .c = s.rows(), .transpose_b = true};
  else
    args = {.a = s.x({s.k(), s.m()}),
            .b = s.x({s.k(), s.n()}),
            .c = s.sums({s.m(), s.n()}),
            .transpose_a = true,
            .accumulates = true};
}
SampleSizes usual_sizes(const MatmulArgs& /*args*/) {
  const std::vector<std::int64_t> sides = {16, 48, 128, 384, 1024};
  return {.m = sides, .n = sides, .k = sides};
}

void check(const AddBiasArgs& args) {
  const ArgumentChecker must("add_bias");
  must.matrix("y", args.y);
  must.count("bias", args.bias, num_columns(args.y));
  must.dtype("bias", args.bias, args.y.dtype);
}
OpCost cost(const AddBiasArgs& args) { return cost_by_rows(args.y, 1, 2 * bytes_of(args.y) + bytes_of(args.bias)); }
Operands operands_of(const AddBiasArgs& args) { return {args.y.dtype, {args.y, args.bias}, {}}; }
void infer(Inference& call, const AddBiasArgs& args) {
  const Operand y = call.read("y", args.y), bias = call.read("bias", args.bias);
  LayoutType type;
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(y, axis);
    const bool goes_together =
        y.is_sharded_along(axis, 1) ? bias.is_sharded_along(axis, 0) : bias[axis].placement != TensorPlacement::sharded;
    if (!goes_together) call.fail_together(y, bias, axis);
    call.require_complete(bias, axis);
    type[axis] = y[axis];
  }
  call.write(args.y, type);
}
void sample(SampleOperands& s, AddBiasArgs& args) { args = {s.rows(), s.x({s.n()})}; }
SampleSizes usual_sizes(const AddBiasArgs& /*args*/) { return usual_sizes_of_rows(); }

void check(const BiasBackwardArgs& args) {
  const ArgumentChecker must("bias_backward");
  must.matrix("dy", args.dy);
  must.count("dbias", args.dbias, num_columns(args.dy));
  must.gradient("dbias", args.dbias, args.dy.dtype);
}
OpCost cost(const BiasBackwardArgs& args) {
  return cost_by_rows(args.dy, 1, bytes_of(args.dy) + 2 * bytes_of(args.dbias));
}
Operands operands_of(const BiasBackwardArgs& args) { return {args.dy.dtype, {args.dy, args.dbias}, {}}; }
void infer(Inference& call, const BiasBackwardArgs& args) {
  const Operand dy = call.read("dy", args.dy);
  LayoutType type;
  for (const TypeAxis axis : call.axes()) type[axis] = sum_of_rows(call, dy, axis);
  call.add_to("dbias", args.dbias, type);
}
void sample(SampleOperands& s, BiasBackwardArgs& args) { args = {s.rows(), s.sums({s.n()})}; }
SampleSizes usual_sizes(const BiasBackwardArgs& /*args*/) { return usual_sizes_of_rows(); }

}  // namespace echelon
