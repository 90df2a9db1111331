#include "nn/mixture/token_gate.h"

#include "nn/sharding.h"
#include "spec/groups.h"

namespace echelon {
namespace {

constexpr RouterRule rule = {.scores = ExpertScores::sigmoid};

/// In the workspace; experts, slots and weights [N, 1].
struct OnlyExpert {
  Tensor experts, weights, slots;
};

OnlyExpert choose(Context& context, Tensor logits) {
  const auto take = [&](DType dtype, const Sizes& sizes) { return context.workspace.take(dtype, sizes); };
  const OnlyExpert only = {take(DType::int32, logits.sizes), take(logits.dtype, logits.sizes),
                           take(DType::int32, logits.sizes)};
  context.ops.choose_experts({.logits = logits, .experts = only.experts, .weights = only.weights, .rule = rule});
  context.ops.expert_slots({.experts = only.experts, .slots = only.slots, .offsets = take(DType::int32, {2})});
  return only;
}

}  // namespace

Linear token_gate(const LayerOptions& options, const std::string& name) {
  Param weight = replicated(options, name, {1, options.model.hidden_size});
  if (options.tp > 1) weight.groups.partial = tp_group;
  weight.init_std = options.model.initializer_range;
  return {options, std::move(weight)};
}

void weight_by_gate(Context& context, Tensor logits, Tensor rows) {
  const Stack::Scope scope(context.workspace);
  const OnlyExpert only = choose(context, logits);
  context.ops.weight_rows({.x = rows, .slots = only.slots, .weights = only.weights, .y = rows});
}

void gate_backward(Context& context, Tensor logits, const GateGradients& of) {
  const Stack::Scope scope(context.workspace);
  const OnlyExpert only = choose(context, logits);
  const Tensor dweights = context.workspace.take(logits.dtype, logits.sizes);
  context.ops.weight_rows_backward({.dy = of.dy,
                                    .x = of.activated,
                                    .slots = only.slots,
                                    .weights = only.weights,
                                    .dx = of.dy,
                                    .dweights = dweights,
                                    .y = of.activated});
  context.ops.choose_experts_backward(
      {.logits = logits, .experts = only.experts, .dweights = dweights, .dlogits = of.dlogits, .rule = rule});
}

}  // namespace echelon
