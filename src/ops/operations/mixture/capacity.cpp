#include "ops/operations/mixture/capacity.h"

#include "ops/checker.h"
#include "ops/description.h"
#include "ops/operations/mixture/expert_rows.h"
#include "ops/sample.h"
#include "types/rules.h"

namespace echelon {

void check(const LimitExpertsArgs& args) {
  const ArgumentChecker must("limit_experts");
  must.dims("of_sequences", args.of_sequences, 2);
  must.dtype("of_sequences", args.of_sequences, DType::int32);
  must.dtype("places", args.places, DType::int32);
  must.count("places", args.places, args.of_sequences.size(0));
  must.dims("kept", args.kept, 2);
  must.dtype("kept", args.kept, DType::int32);
  must.like("experts", args.experts, args.kept);
  must.that(args.kept.size(1) == args.of_sequences.size(1), "kept", args.kept, "have a column for each choice");
  must.that(args.first_token >= 0 && args.first_token + args.kept.size(0) <= args.of_sequences.size(0), "kept",
            args.kept, "be of tokens with experts");
  must.that(args.capacity >= 1 && args.tokens_per_sequence >= 1, "of_sequences", args.of_sequences,
            "have a capacity and sequences of 1 or more");
  if (!args.weights.exists()) return;
  must.count("weights", args.weights, args.of_sequences.num_elements());
  must.that(args.weights.dtype == DType::float32 || args.weights.dtype == DType::float64, "weights", args.weights,
            "be float32 or float64");
}
OpCost cost(const LimitExpertsArgs& args) {
  return cost_by_elements(args.of_sequences, 2,
                          bytes_of(args.experts, args.of_sequences, args.places, args.kept) + bytes_if(args.weights));
}
Operands operands_of(const LimitExpertsArgs& args) {
  return {DType::int32, existing({args.experts, args.of_sequences, args.places, args.weights}), {args.kept}};
}
// Whole sequences are read, and a rank's own tokens written.
void infer(Inference& call, const LimitExpertsArgs& args) {
  const Operand own = call.read("experts", args.experts), all = call.read("of_sequences", args.of_sequences),
                places = call.read("places", args.places);
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(own, axis);
    if (axis == TypeAxis::dp_replicate || axis == TypeAxis::dp_shard) {
      for (const Operand& x : {all, places}) require_same_tokens(call, x, own, axis);
      continue;
    }
    for (const Operand& x : {all, places}) call.require_whole(x, axis);
    if (args.weights.exists()) call.require_whole(call.read("weights", args.weights), axis);
  }
  call.write(args.kept, own.piece.type);
}
void sample(SampleOperands& s, LimitExpertsArgs& args) {
  args = {.experts = s.tokens(num_sample_experts).reshaped({s.m(), 1}),
          .of_sequences = s.tokens(num_sample_experts).reshaped({s.m(), 1}),
          .places = s.integers({s.m()}, [](std::int64_t i) { return i + 1; }),
          .kept = sample_slots(s, s.m(), 1),
          .tokens_per_sequence = s.m()};
}
SampleSizes usual_sizes(const LimitExpertsArgs& /*args*/) { return {}; }

}  // namespace echelon
