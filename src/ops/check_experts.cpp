#include "ops/check.h"
#include "ops/checker.h"

namespace echelon {
namespace {

void check_offsets(const ArgumentChecker& must, const Tensor& offsets) {
  must.dtype("offsets", offsets, DType::int32);
  must.dims("offsets", offsets, 1);
  must.that(offsets.size(0) >= 2 && offsets.size(0) <= most_experts + 1, "offsets", offsets,
            "be of one expert or more, and of 8192 at most");
}

/// Rows [N, D] of tokens and [R, D] of experts.
void check_slots(const ArgumentChecker& must, const Tensor& slots, const Tensor& of_tokens, const Tensor& of_experts) {
  must.dims("slots", slots, 2);
  must.dtype("slots", slots, DType::int32);
  must.dims("the tokens' rows", of_tokens, 2);
  must.computes("the tokens' rows", of_tokens);
  must.dims("the experts' rows", of_experts, 2);
  must.dtype("the experts' rows", of_experts, of_tokens.dtype);
  must.that(of_tokens.size(0) == slots.size(0), "the tokens' rows", of_tokens, "have a row for each row of slots");
  must.that(of_experts.size(0) == slots.num_elements(), "the experts' rows", of_experts, "have a row for each slot");
  must.that(of_experts.size(1) == of_tokens.size(1), "the experts' rows", of_experts, "be as wide as those of tokens");
}

void check_weights(const ArgumentChecker& must, std::string_view name, const Tensor& weights, const Tensor& slots,
                   DType activations) {
  must.statistics(name, weights, slots.num_elements(), activations);
}

}  // namespace

void check(const ExpertSlotsArgs& args) {
  const ArgumentChecker must("expert_slots");
  must.dims("experts", args.experts, 2);
  must.dtype("experts", args.experts, DType::int32);
  must.like("slots", args.slots, args.experts);
  check_offsets(must, args.offsets);
}

void check(const PermuteToExpertsArgs& args) {
  check_slots(ArgumentChecker("permute_to_experts"), args.slots, args.x, args.y);
}

void check(const CombineExpertsArgs& args) {
  const ArgumentChecker must("combine_experts");
  check_slots(must, args.slots, args.out, args.y);
  if (args.weights.exists()) check_weights(must, "weights", args.weights, args.slots, args.y.dtype);
}

void check(const CombineExpertsBackwardArgs& args) {
  const ArgumentChecker must("combine_experts_backward");
  check_slots(must, args.slots, args.dout, args.y);
  must.like("dy", args.dy, args.y);
  check_weights(must, "weights", args.weights, args.slots, args.y.dtype);
  check_weights(must, "dweights", args.dweights, args.slots, args.y.dtype);
}

void check(const GroupedMatmulArgs& args) {
  const ArgumentChecker must("grouped_matmul");
  must.dims("a", args.a, 2);
  must.dims("w", args.w, 3);
  must.dims("c", args.c, 2);
  must.computes("a", args.a);
  must.dtype("w", args.w, args.a.dtype);
  must.dtype("c", args.c, args.a.dtype);
  check_offsets(must, args.offsets);
  must.that(args.w.size(0) == args.offsets.size(0) - 1, "w", args.w, "have a matrix for each expert");
  must.that(args.w.size(args.transpose_w ? 2 : 1) == args.a.size(1), "w", args.w, "share the inner size with a");
  must.that(args.c.sizes == Sizes{args.a.size(0), args.w.size(args.transpose_w ? 1 : 2)}, "c", args.c,
            "have a's rows and w's outer size");
}

void check(const GroupedMatmulBackwardWeightArgs& args) {
  const ArgumentChecker must("grouped_matmul_backward_weight");
  must.dims("dy", args.dy, 2);
  must.dims("x", args.x, 2);
  must.computes("dy", args.dy);
  must.dtype("x", args.x, args.dy.dtype);
  must.that(args.x.size(0) == args.dy.size(0), "x", args.x, "have dy's rows");
  check_offsets(must, args.offsets);
  must.gradient("dw", args.dw, args.dy.dtype);
  must.that(args.dw.sizes == Sizes{args.offsets.size(0) - 1, args.dy.size(1), args.x.size(1)}, "dw", args.dw,
            "be [experts, dy's width, x's width]");
}

}  // namespace echelon
