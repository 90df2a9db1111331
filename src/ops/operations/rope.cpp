#include "ops/operations/rope.h"

#include "ops/checker.h"
#include "ops/description.h"
#include "ops/sample.h"
#include "types/rules.h"

#include <algorithm>

namespace echelon {
namespace {

void check_part(const ArgumentChecker& must, const RopeArgs& args) {
  must.that(2 * args.num_pairs() >= args.x.size(3) || args.y.data == args.x.data, "y", args.y,
            "be x where a part of the columns turns");
  must.that(!args.y.has_amax || 2 * args.num_pairs() == args.x.size(3), "y", args.y,
            "have no largest magnitude where a part of the columns turns");
}

void check_positions(const ArgumentChecker& must, const RopeArgs& args) {
  must.dtype("positions", args.positions, DType::int32);
  must.count("positions", args.positions, args.x.size(0) * args.x.size(1));
  must.dtype("frequencies", args.frequencies, DType::float64);
  must.that(args.num_pairs() <= args.x.size(3) / 2, "frequencies", args.frequencies,
            "have half a head's width at most");
  must.that(args.first_position == 0 && !args.cos.exists() && !args.sin.exists(), "positions", args.positions,
            "come without tables");
  must.that(args.period >= 1, "positions", args.positions, "have a period of at least 1");
  check_part(must, args);
}

/// The positions are those of x's own rows.
void require_positions_of(const Inference& call, const RopeArgs& args, const Operand& x) {
  const Operand positions = call.read("positions", args.positions),
                frequencies = call.read("frequencies", args.frequencies);
  for (const TypeAxis axis : call.axes()) {
    call.require_whole(frequencies, axis);
    if (axis == TypeAxis::tp || axis == TypeAxis::kv_replica)
      call.require_whole(positions, axis);
    else
      require_same_rows(call, positions, x, axis);
  }
}

void require_tables(const Inference& call, const RopeArgs& args) {
  for (const Operand& table : {call.read("cos", args.cos), call.read("sin", args.sin)})
    for (const TypeAxis axis : call.axes()) call.require_whole(table, axis);
}

}  // namespace

void check(const RopeArgs& args) {
  const ArgumentChecker must("rope");
  must.dims("x", args.x, 4);
  must.computes("x", args.x);
  must.like("y", args.y, args.x);
  must.that(args.x.size(3) % 2 == 0, "x", args.x, "have an even head width");
  if (!args.has_tables()) return check_positions(must, args);
  must.dims("cos", args.cos, 2);
  must.dtype("cos", args.cos, accumulate_dtype(args.x.dtype));
  must.like("sin", args.sin, args.cos);
  must.that(args.num_pairs() <= args.x.size(3) / 2, "cos", args.cos, "have half a head's width at most");
  must.that(args.first_position >= 0 && args.first_position + args.x.size(1) <= args.cos.size(0), "cos", args.cos,
            "have a row for every position");
  check_part(must, args);
}
// Two multiplications and one addition per element that turns, without those of angles; in place, as layers call it, so
// that other columns are not moved; the rows of the tables that belong to the positions.
OpCost cost(const RopeArgs& args) {
  const std::int64_t R = 2 * args.num_pairs(), C = std::max<std::int64_t>(1, args.x.size(3));
  const std::int64_t of_angles =
      args.has_tables() ? args.x.size(1) * R * size_of(args.cos.dtype) : bytes_of(args.positions, args.frequencies);
  OpCost cost = cost_by_rows(args.x, 3, bytes_of(args.x, args.y) / C * R + of_angles);
  cost.flops = cost.flops / C * R;
  return cost;
}
Operands operands_of(const RopeArgs& args) {
  return {args.x.dtype, existing({args.x, args.cos, args.sin, args.positions, args.frequencies}), {args.y}};
}
void infer(Inference& call, const RopeArgs& args) {
  const Operand x = call.read("x", args.x);
  for (const TypeAxis axis : call.axes())
    if (x[axis] != partial_layout) require_whole_rows_of_heads(call, x, axis);
  args.has_tables() ? require_tables(call, args) : require_positions_of(call, args, x);
  call.write(args.y, x.piece.type);
}
void sample(SampleOperands& s, RopeArgs& args) {
  const std::int64_t C = s.n(), T = std::min<std::int64_t>(s.m(), 256), H = std::max<std::int64_t>(1, s.m() / T);
  const Tensor y = s.x({1, T, H, C});
  args = {.x = y, .y = y, .cos = s.sums({T, C / 2}), .sin = s.sums({T, C / 2})};
}
SampleSizes usual_sizes(const RopeArgs& /*args*/) { return {.m = {256, 4096, 65536}, .n = {32, 64, 128}}; }

}  // namespace echelon
