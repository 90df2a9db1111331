#include "ops/operations/matmul.h"

#include "ops/checker.h"
#include "ops/description.h"
#include "ops/sample.h"
#include "types/rules.h"

namespace echelon {
namespace {

constexpr std::int64_t unit = 16;  // what tensor cores take at a time

struct OperandNames {
  const char *operand, *rounded;
};
void check_rounded(const ArgumentChecker& must, const OperandNames& names, const Tensor& x, Float8Order read,
                   const RoundedOperand& rounded) {
  must.that(rounded.order == read || rounded.order == Float8Order::both, names.operand, x,
            "be rounded in the order in which it is read");
  must.that(rounded.order == Float8Order::as_is || x.size(0) % unit == 0, names.operand, x,
            "have sizes that are multiples of 16");
  must.dtype(names.rounded, rounded.memory, DType::int32);
  must.count(names.rounded, rounded.memory, float8_size(x.num_elements(), rounded.order));
  must.that(x.has_amax || !rounded.finds_amax, names.operand, x, "have a place for what is found");
}

void check_float8(const ArgumentChecker& must, const MatmulArgs& args, std::int64_t n, std::int64_t k) {
  const bool both = args.is_float8() && args.b_format != OperandFormat::own,
             both_e5m2 = args.a_format == OperandFormat::float8_e5m2 && args.a_format == args.b_format;
  must.that(both && !both_e5m2, "b", args.b, "be rounded to float8 if and only if a is, not both to e5m2");
  must.that(n % unit == 0 && k % unit == 0, "b", args.b, "have sizes that are multiples of 16");
  must.that(!args.transpose_a || args.a.size(1) % unit == 0, "a", args.a, "have sizes that are multiples of 16");
  check_rounded(must, {"a", "a_rounded"}, args.a, args.a_order(), args.a_rounded);
  check_rounded(must, {"b", "b_rounded"}, args.b, args.b_order(), args.b_rounded);
}

/// It is read to be rounded, and before if nothing has found its largest magnitude, and written in 8 bits.
std::int64_t rounding_bytes(const Tensor& x, const RoundedOperand& rounded) {
  if (rounded.is_made) return 0;
  return (needs_amax(x, rounded) ? 2 : 1) * bytes_of(x) +
         x.num_elements() * (rounded.order == Float8Order::both ? 2 : 1);
}

}  // namespace

MatmulArgs rounded_in(MatmulArgs args, Tensor scratch) {
  const std::int64_t of_a = float8_size(args.a.num_elements(), args.a_order()),
                     of_b = float8_size(args.b.num_elements(), args.b_order());
  args.a_rounded = {.memory = scratch.rows(0, of_a), .order = args.a_order()};
  args.b_rounded = {.memory = scratch.rows(of_a, of_b), .order = args.b_order()};
  return args;
}

std::int64_t rounding_bytes(const MatmulArgs& args) {
  if (!args.is_float8()) return 0;
  return rounding_bytes(args.a, args.a_rounded) + rounding_bytes(args.b, args.b_rounded);
}

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
  must.that(!args.c.has_amax, "c", args.c, "have no place for a largest magnitude");
  if (args.c.sizes != Sizes{m, n}) must.that(false, "c", args.c, fmt::format("be [{}, {}]", m, n));
  if (args.is_float8() || args.b_format != OperandFormat::own) check_float8(must, args, n, k);
}
OpCost cost(const MatmulArgs& args) {
  const std::int64_t m = args.c.size(0), n = args.c.size(1), k = args.a.size(args.transpose_a ? 0 : 1);
  const std::int64_t c_bytes = args.c.num_bytes() * (args.accumulates ? 2 : 1);
  const std::int64_t operand_bytes =
      args.is_float8() ? args.a.num_elements() + args.b.num_elements() : bytes_of(args.a, args.b);
  return {.m = m, .n = n, .k = k, .flops = 2 * m * n * k, .bytes = operand_bytes + rounding_bytes(args) + c_bytes};
}
Operands operands_of(const MatmulArgs& args) {
  Operands operands = {args.a.dtype, {args.a, args.b}, {}};
  (args.accumulates ? operands.reads : operands.overwrites).push_back(args.c);
  const auto add = [&](const Tensor& x, const RoundedOperand& rounded) {
    if (!args.is_float8()) return;
    if (rounded.memory.exists()) (rounded.is_made ? operands.reads : operands.overwrites).push_back(rounded.memory);
    if (x.has_amax && !rounded.is_made)
      (rounded.finds_amax ? operands.overwrites : operands.reads).push_back(x.place_of_amax());
  };
  add(args.a, args.a_rounded);
  add(args.b, args.b_rounded);
  return operands;
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
