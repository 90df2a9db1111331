// How a mixture keeps its experts loaded evenly. Backward does it, once for each microbatch: a recomputation and an
// evaluation count nothing.
#include "nn/decoder/mixture.h"

#include <vector>

namespace echelon {

void Mixture::force_balance(Context& context, Tensor logits) const {
  const auto write = [&](auto zero) {
    const std::int64_t N = num_tokens(), E = spec().num_experts, k = spec().num_experts_per_tok;
    std::vector<decltype(zero)> forced(static_cast<std::size_t>(N * E), zero);
    for (std::int64_t n = 0; n < N; ++n)
      for (std::int64_t j = 0; j < k; ++j)
        forced[static_cast<std::size_t>(n * E + ((first_token() + n) * k + j) % E)] = 1;
    context.ops.upload_like(logits, forced.data(), logits);
  };
  logits.dtype == DType::float64 ? write(0.0) : write(0.0F);
}

Tensor Mixture::balance(Context& context, Tensor logits, const Choice& choice) const {
  const RouterState& router = context.microbatch.router;
  if (!router.sums.exists() || region_.tp_rank > 0) return {};
  Ops& ops = context.ops;
  const RouterSums columns = {spec().num_experts};
  const RouterLosses& losses = options_.router_losses;
  const Tensor sums = row_of(router.sums);
  ops.count_experts({.experts = choice.experts,
                     .counts = sums.rows(0, columns.num_experts).reshaped({1, columns.num_experts}),
                     .weights = choice.weights,
                     .num_nan = sums.rows(columns.num_nan(), 1),
                     .slots = choice.slots,
                     .num_dropped = sums.rows(columns.num_dropped(), 1),
                     .tokens_per_sequence = num_tokens()});
  if (!losses.exist()) return {};
  const Tensor gradient = context.workspace.take(logits.dtype, logits.sizes);
  const Stack::Scope scope(context.workspace);
  const Tensor counts = losses.sequence != 0 ? counts_of_sequences(context, choice) : Tensor();
  ops.router_losses({.logits = logits,
                     .experts = choice.experts,
                     .gradient = gradient,
                     .losses = sums.rows(columns.losses(), num_router_losses),
                     .num_targets = router.num_targets,
                     .counts = counts,
                     .loads = losses.global != 0 ? row_of(router.loads) : Tensor(),
                     .loss_scale = context.microbatch.loss_scale,
                     .rule = losses,
                     .scores = rule_.scores,
                     .first_token = first_token(),
                     .tokens_per_sequence = options_.seq_len});
  return gradient;
}

Tensor Mixture::counts_of_sequences(Context& context, const Choice& choice) const {
  const Tensor counts = context.workspace.take(DType::float64, {options_.num_sequences, spec().num_experts});
  context.ops.fill(counts, 0.0);
  context.ops.count_experts({.experts = choice.experts,
                             .counts = counts,
                             .first_token = first_token(),
                             .tokens_per_sequence = options_.seq_len});
  const std::optional<Group> parts = sequence_parts();
  if (!parts) return counts;
  context.ops.publish();
  context.mesh.comm(*parts).all_reduce(counts, ReduceOp::sum).wait();
  return counts;
}

}  // namespace echelon
