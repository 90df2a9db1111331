// The norm of the gradients and the update, over flat buffers that hold many parameters; and what the host writes and
// reads.
#include "types/rules.h"

#include <fmt/format.h>

#include <algorithm>

namespace echelon {
namespace {

/// x as one of n parts: itself, or this rank's own part of what all of them hold.
AxisLayout as_part(const Inference& call, const Operand& x, TypeAxis axis) {
  return x[axis] == replicated_layout && call.memory().is_own_part(x.piece, x.tensor, axis) ? sharded_rows : x[axis];
}

}  // namespace

// Each number once over all ranks: ranks with the same gradient leave it to the first of them.
void infer(Inference& call, const SumOfSquaresArgs& args) {
  call.for_uniform_ranges({args.x}, [&](std::int64_t first, std::int64_t count) {
    const Tensor range = range_of(args.x, first, count);
    const Operand x = call.read("x", range);
    LayoutType sum;
    for (const TypeAxis axis : call.axes()) {
      call.require_complete(x, axis);
      const bool counts_here = x[axis] != replicated_layout || call.ranks().index(axis) == 0;
      if (!counts_here)
        call.fail(fmt::format("{}, so it counts where {} = 0 alone, but rank {} counts it too", call.words(x, axis),
                              call.ranks().name(axis), call.ranks().rank()));
      sum[axis] = partial_layout;
    }
    TypedPiece* piece = call.memory().piece_at(range);
    if (piece->is_counted) call.fail("x is counted twice in one sum");
    piece->is_counted = true;
    call.add_to("sum", args.sum, sum);
  });
}

void infer(Inference& call, const GradientFactorArgs& args) {
  call.require_the_same(call.read("sum_of_squares", args.sum_of_squares));
  call.require_the_same(call.read("num_targets", args.num_targets));
  if (args.loss_scale.exists()) call.require_the_same(call.read("loss_scale", args.loss_scale));
  for (const Tensor& out : {args.norm, args.factor}) call.write(out, LayoutType());
}

void infer(Inference& call, const AdamWArgs& args) {
  call.require_the_same(call.read("scalars", args.scalars));
  call.for_uniform_ranges({args.param, args.master, args.grad, args.m, args.v},
                          [&](std::int64_t first, std::int64_t count) {
                            const Operand master = call.read("master", range_of(args.master, first, count)),
                                          grad = call.read("grad", range_of(args.grad, first, count)),
                                          m = call.read("m", range_of(args.m, first, count)),
                                          v = call.read("v", range_of(args.v, first, count));
                            std::vector<Operand> state = {master, m, v};
                            if (is_remainder(args))
                              state.push_back(call.read("param", range_of(args.param, first, count)));
                            LayoutType type;
                            for (const TypeAxis axis : call.axes()) {
                              call.require_complete(grad, axis);
                              for (const Operand& x : state)
                                if (as_part(call, x, axis) != grad[axis] && x[axis] != grad[axis])
                                  call.fail_together(grad, x, axis);
                              type[axis] = grad[axis];
                            }
                            for (const Tensor& out : {args.param, args.master, args.m, args.v})
                              call.write(range_of(out, first, count), type);
                          });
}

// What the host writes is of the type that its places were given names with; else a constant.
void infer(Inference& call, const UploadArgs& args) {
  const auto named_parts = call.memory().named_in(args.out.flat());
  for (const auto& [part, named] : named_parts) call.write(part, named->type);
  if (!named_parts.empty()) return;
  const NamedMemory* named = call.memory().named_at(args.out);
  call.write(args.out, named != nullptr ? named->type : LayoutType());
}

// What the host reads decides what it does next.
void infer(Inference& call, const DownloadArgs& args) { call.require_the_same(call.read("x", args.x)); }

}  // namespace echelon
