#include "verify/reference.h"

namespace echelon {

RunConfig one_rank(RunConfig config) {
  const TrainingConfig plain;
  config.parallelism = {};
  config.data.balance_batch = false;
  config.training.micro_batch_size = 1;
  config.training.recompute = plain.recompute;
  config.training.recompute_method = plain.recompute_method;
  config.training.recompute_num_layers = plain.recompute_num_layers;
  config.training.mlp_chunk_tokens = plain.mlp_chunk_tokens;
  return config;
}

const std::vector<double>& Reference::gradient(std::int64_t at, const std::string& tensor) const {
  return step(at).gradients.tensors().at(tensor);
}

const std::vector<double>& Reference::weight(std::int64_t at, const std::string& tensor) const {
  return step(at).weights.tensors().at(tensor);
}

void Reference::starts(const RankView& rank) {
  steps_.emplace_back().weights.add_values(rank.run.model(), rank.ops);
  visit_values(rank.run.model(), [&](const ParamPiece& piece) {
    positions_[piece.param.name] = static_cast<int>(tensors_.size());
    tensors_.push_back(piece.param.name);
    if (piece.param.name.ends_with(".mlp.gate.weight")) routers_.push_back(piece.param.name);
  });
}

void Reference::has_gradients(const RankView& rank, std::int64_t /*step*/, double factor) {
  ReferenceStep& step = steps_.emplace_back();
  step.gradients.add_gradients(rank.run.model(), rank.ops, factor);
  step.gradient_floor = root_mean_square(step.gradients);
}

void Reference::ended_step(const RankView& rank, std::int64_t /*step*/, const StepResult& result) {
  ReferenceStep& step = steps_.back();
  step.loss = result.loss;
  step.grad_norm = result.grad_norm;
  step.num_targets = result.num_targets;
  step.weights.add_values(rank.run.model(), rank.ops);
  step.routers = router_values(rank);
}

void run_reference(const RunConfig& config, const BatchSource& batches, std::int64_t num_steps, Reference& reference) {
  const Blueprint blueprint(one_rank(config));
  run_layout({.blueprint = blueprint, .batches = batches, .num_steps = num_steps}, reference);
}

}  // namespace echelon
