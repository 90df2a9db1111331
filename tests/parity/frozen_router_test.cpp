// moe.freeze_router: routers keep their weights on every layout, and everything else is trained.
#include "base/error.h"
#include "engine/types/layout_types.h"
#include "parity/layout.h"
#include "parity/locks.h"
#include "parity/training_run.h"

#include <gtest/gtest.h>

#include <cmath>

namespace echelon::testing {
namespace {

/// The largest change of a weight of routers, or of others, in a run.
double change(const TensorCollection& before, const TensorCollection& after, bool of_routers) {
  double largest = 0;
  for (const auto& [name, values] : after.tensors()) {
    if (name.ends_with(".mlp.gate.weight") != of_routers) continue;
    for (std::size_t i = 0; i < values.size(); ++i)
      largest = std::max(largest, std::abs(values[i] - before.tensors().at(name)[i]));
  }
  return largest;
}

/// Every level of sharding, experts over ranks, and both kinds of tensor parallelism.
std::vector<Layout> frozen_rows() {
  return {{.replicate = 2, .experts = 6},
          {.shard = 2, .zero = 1, .experts = 6},
          {.shard = 4, .zero = 3, .experts = 6, .ep = 2},
          {.replicate = 2, .shard = 2, .tied = true, .zero = 2, .experts = 6},
          {.tp = 2, .experts = 5},
          {.tp = 2, .sequence_parallel = true, .family = Family::qwen2, .experts = 6},
          {.shard = 2, .tp = 2, .sequence_parallel = true, .experts = 6, .ep = 2},
          {.shard = 2,
           .tp = 2,
           .sequence_parallel = true,
           .zero = 3,
           .reshard = ReshardAfterForward::step,
           .experts = 4,
           .ep = 4},
          {.shard = 2, .zero = 2, .cp = 2, .experts = 6},
          {.shard = 2,
           .pp = 2,
           .schedule = PipelineSchedule::zb_h1,
           .microbatches = 4,
           .zero = 2,
           .recompute = {BlockOperation::mlp},
           .experts = 6}};
}

TEST(FrozenRouter, KeepsItsWeightsOnEveryLayout) {
  for (const Layout& layout : frozen_rows()) {
    SCOPED_TRACE(name_of(layout));
    RunConfig config = config_of(layout), at_rest = one_rank(config);
    config.moe.freeze_router = true;
    at_rest.optimizer.lr = 0;
    config.training.steps = at_rest.training.steps = 4;
    EXPECT_NO_THROW(check_layout_types(Blueprint(config)));
    const auto at_end = [&](const RankView& rank) { expect_locks_hold(rank, {.training = 4, .evaluation = 1}); };
    const auto actual = run_training(config, {.at_end = at_end}), expected = run_training(one_rank(config)),
               initial = run_training(at_rest);
    for (const auto& [name, values] : actual->first_gradients.tensors())
      EXPECT_FALSE(name.ends_with(".mlp.gate.weight")) << name << " has a gradient";
    expect_equal(*actual, *expected, 1e-11, 1e-9, config.optimizer.lr);
    EXPECT_EQ(change(initial->values, actual->values, true), 0);
    EXPECT_GT(change(initial->values, actual->values, false), 1e-4);
  }
}

TEST(FrozenRouter, IsRefusedWithWhatMovesIt) {
  const auto refusal = [](RunConfig config, bool freezes) {
    config.moe.freeze_router = freezes;
    try {
      validate(config);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const RunConfig with_losses = config_of({.experts = 5, .router_losses = true});
  EXPECT_EQ(refusal(with_losses, true),
            "moe.seq_aux_loss_coeff = 0.2 moves routers, which moe.freeze_router = true keeps (use 0)");
  EXPECT_EQ(refusal(with_losses, false), "accepted");
  EXPECT_EQ(refusal(config_of({.experts = 5}), true), "accepted");
  EXPECT_EQ(refusal(config_of({}), true),
            "moe.freeze_router = true is for mixtures of experts, and the model has no experts (use false)");
}

}  // namespace
}  // namespace echelon::testing
