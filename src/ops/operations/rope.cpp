#include "ops/operations/rope.h"

#include "ops/checker.h"
#include "ops/description.h"
#include "ops/sample.h"
#include "types/rules.h"

#include <algorithm>

namespace echelon {

void check(const RopeArgs& args) {
  const ArgumentChecker must("rope");
  must.dims("x", args.x, 4);
  must.computes("x", args.x);
  must.like("y", args.y, args.x);
  must.that(args.x.size(3) % 2 == 0, "x", args.x, "have an even head width");
  must.dims("cos", args.cos, 2);
  must.dtype("cos", args.cos, accumulate_dtype(args.x.dtype));
  must.like("sin", args.sin, args.cos);
  must.that(args.cos.size(1) == args.x.size(3) / 2, "cos", args.cos, "have half a head's width");
  must.that(args.first_position >= 0 && args.first_position + args.x.size(1) <= args.cos.size(0), "cos", args.cos,
            "have a row for every position");
}
// Two multiplications and one addition per element; the rows of the tables that belong to the positions.
OpCost cost(const RopeArgs& args) {
  const std::int64_t tables = 2 * args.x.size(1) * args.cos.size(1) * size_of(args.cos.dtype);
  return cost_by_rows(args.x, 3, bytes_of(args.x, args.y) + tables);
}
Operands operands_of(const RopeArgs& args) { return {args.x.dtype, {args.x, args.cos, args.sin}, {args.y}}; }
void infer(Inference& call, const RopeArgs& args) {
  const Operand x = call.read("x", args.x), cos = call.read("cos", args.cos), sin = call.read("sin", args.sin);
  for (const TypeAxis axis : call.axes()) {
    for (const Operand& table : {cos, sin}) call.require_whole(table, axis);
    if (x[axis] != partial_layout) require_whole_rows_of_heads(call, x, axis);
  }
  call.write(args.y, x.piece.type);
}
void sample(SampleOperands& s, RopeArgs& args) {
  const std::int64_t C = s.n(), T = std::min<std::int64_t>(s.m(), 256), H = std::max<std::int64_t>(1, s.m() / T);
  const Tensor y = s.x({1, T, H, C});
  args = {.x = y, .y = y, .cos = s.sums({T, C / 2}), .sin = s.sums({T, C / 2})};
}
SampleSizes usual_sizes(const RopeArgs& /*args*/) { return {.m = {256, 4096, 65536}, .n = {32, 64, 128}}; }

}  // namespace echelon
