// Faults that a layer, the optimizer or the step could have, planted one at a time: types find each before anything is
// computed, and name where it is.
#include "parity/layout.h"
#include "spec/groups.h"
#include "types/planted.h"

#include <gmock/gmock.h>

namespace echelon::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Groups = std::vector<Group>;

/// What `becomes` makes of the `which`-th collective (from 0) that `matches`; the others stay.
PlantInMesh at(int which, std::function<bool(const Collective&)> matches, Groups becomes) {
  return [seen = std::make_shared<int>(-1), which, matches = std::move(matches),
          becomes = std::move(becomes)](const Collective& collective) {
    const bool is_it = matches(collective) && ++*seen == which;
    return is_it ? becomes : Groups{collective.group};
  };
}
PlantInMesh every(std::function<bool(const Collective&)> matches, Groups becomes) {
  return [matches = std::move(matches), becomes = std::move(becomes)](const Collective& collective) {
    return matches(collective) ? becomes : Groups{collective.group};
  };
}

bool sums_activations(const Collective& c) {
  return c.kind == CommKind::all_reduce && c.group == tp_group && c.x.sizes.num_dims() == 2 && c.x.size(0) > 2;
}
bool sums_replicas(const Collective& c) {
  return c.kind == CommKind::all_reduce && c.group.axes == tp_group.axes && c.x.sizes.num_dims() == 1 &&
         c.op == ReduceOp::sum;
}
bool reduces_gradients(const Collective& c) {
  return c.x.num_elements() > 8 && (c.group == replicate_group || c.group == shard_group) &&
         c.kind != CommKind::all_gather;
}

RunConfig tensor_parallel() { return config_of({.replicate = 2, .tp = 2, .family = Family::llama}); }
RunConfig sequence_parallel() {
  return config_of({.replicate = 2, .tp = 2, .sequence_parallel = true, .family = Family::llama});
}

// Claim (checks): A collective that is missing, doubled or over the wrong ranks ends a run before
//   its first step, in a sentence with the layer and the operation.
// Bound: each injected fault is named; no correct layout is refused.
// Tests: LayoutType
TEST(LayoutTypeFaults, NothingPlantedIsNoFault) {
  for (const RunConfig& config : {tensor_parallel(), sequence_parallel()}) EXPECT_EQ(fault_of(config, {}), "");
}

TEST(LayoutTypeFaults, AMissingAllReduceBehindTheRowParallelProduct) {
  EXPECT_THAT(
      fault_of(tensor_parallel(), {.mesh = at(1, sums_activations, {})}),
      AllOf(HasSubstr("forward stage 0 microbatch 0: rms_norm of model.layers.0.post_attention_layernorm.weight"),
            HasSubstr("which matmul of model.layers.0.self_attn.o_proj.weight wrote, is partial over tp")));
  EXPECT_THAT(fault_of(tensor_parallel(), {.mesh = at(2, sums_activations, {})}),
              AllOf(HasSubstr("add behind model.layers.0.mlp.down_proj.weight"), HasSubstr("is partial over tp")));
}

TEST(LayoutTypeFaults, ADoubledAllReduce) {
  EXPECT_THAT(fault_of(tensor_parallel(), {.mesh = at(1, sums_activations, {tp_group, tp_group})}),
              AllOf(HasSubstr("all_reduce behind model.layers.0.self_attn.o_proj.weight"),
                    HasSubstr("would count it 2 times")));
}

TEST(LayoutTypeFaults, ASumOverTheWrongGroup) {
  EXPECT_THAT(fault_of(tensor_parallel(), {.mesh = at(1, sums_activations, {data_group})}),
              AllOf(HasSubstr("matmul of model.layers.0.self_attn.o_proj.weight"),
                    HasSubstr("sharded(0) over dp_replicate"), HasSubstr("different parts")));
  EXPECT_THAT(fault_of(tensor_parallel(), {.mesh = every(reduces_gradients, {tp_group})}),
              AllOf(HasSubstr("reduce_gradients"), HasSubstr("the gradient of"), HasSubstr("over tp")));
}

TEST(LayoutTypeFaults, AMissingSumOfWhatIsPartialUnderSequenceParallelism) {
  EXPECT_THAT(fault_of(sequence_parallel(), {.mesh = every(sums_replicas, {})}),
              AllOf(HasSubstr("layernorm.weight"), HasSubstr("partial over tp")));
  RunConfig biased = config_of({.tp = 2, .sequence_parallel = true, .family = Family::gpt2});
  EXPECT_THAT(fault_of(biased, {.mesh = every(sums_replicas, {})}), HasSubstr("partial over tp"));
}

TEST(LayoutTypeFaults, AMissingSumOverRanksThatShareAKvHead) {
  const RunConfig config = config_of({.tp = 4});  // of 2 kv heads
  EXPECT_EQ(fault_of(config, {}), "");
  EXPECT_THAT(fault_of(config, {.mesh = every(sums_replicas, {})}),
              AllOf(HasSubstr("self_attn.k_proj.weight"), HasSubstr("partial over tp/2")));
  EXPECT_THAT(fault_of(config, {.mesh = every(sums_replicas, {tp_group})}),
              AllOf(HasSubstr("sum_replicas"), HasSubstr("self_attn.k_proj.weight"), HasSubstr("different parts")));
}

TEST(LayoutTypeFaults, ARouterWhoseGradientIsNotSummedOverRanksThatDivideItsExperts) {
  const RunConfig config = config_of({.tp = 2, .experts = 5});
  EXPECT_EQ(fault_of(config, {}), "");
  EXPECT_THAT(fault_of(config, {.mesh = every(sums_replicas, {})}),
              AllOf(HasSubstr("model.layers.0.mlp.gate.weight"), HasSubstr("partial over tp")));
  EXPECT_THAT(fault_of(config, {.mesh = every(sums_replicas, {tp_group, tp_group})}),
              AllOf(HasSubstr("1.mlp.gate.weight"), HasSubstr("would count it 2 times")));  // the first that is reduced
}

TEST(LayoutTypeFaults, AMissingAllReduceBehindExperts) {
  EXPECT_THAT(fault_of(config_of({.tp = 2, .experts = 5}), {.mesh = at(2, sums_activations, {})}),
              HasSubstr("is partial over tp"));
}

TEST(LayoutTypeFaults, ATiedWeightWhoseGradientIsNotSummedOverItsStages) {
  const RunConfig config = config_of({.pp = 3, .tied = true});
  const auto sums_tied = [](const Collective& c) { return c.group == tied_group; };
  EXPECT_EQ(fault_of(config, {}), "");
  EXPECT_THAT(fault_of(config, {.mesh = every(sums_tied, {})}),
              AllOf(HasSubstr("clip: sum_of_squares of the gradient of model.embed_tokens.weight"),
                    HasSubstr("partial over pp")));
  EXPECT_THAT(fault_of(config, {.mesh = every(sums_tied, {tied_group, tied_group})}),
              HasSubstr("would count it 3 times"));
}

TEST(LayoutTypeFaults, AReplicatedParameterCountedTwiceInTheNorm) {
  const auto count_everywhere = [](RankRun& run) {
    for (Param* param : run.model().part().params()) param->is_first_copy = true;
  };
  EXPECT_THAT(fault_of(tensor_parallel(), {.run = count_everywhere}),
              AllOf(HasSubstr("clip: sum_of_squares of the gradient of model.layers.0.input_layernorm.weight"),
                    HasSubstr("counts where tp = 0 alone")));
  EXPECT_THAT(fault_of(config_of({.tp = 4}), {.run = count_everywhere}), HasSubstr("counts where tp"));
}

TEST(LayoutTypeFaults, AParameterThatIsNotInTheNorm) {
  const auto leave_out = [](RankRun& run) {
    for (Param* param : run.model().part().params())
      param->is_first_copy = param->is_first_copy && !param->name.ends_with("1.mlp.up_proj.weight");
  };
  EXPECT_THAT(fault_of(tensor_parallel(), {.run = leave_out}),
              HasSubstr("model.layers.1.mlp.up_proj.weight is not in the norm"));
}

TEST(LayoutTypeFaults, ANormThatIsNotSummedOverAllRanks) {
  const auto sums_squares = [](const Collective& c) { return c.group == step_group && c.x.num_elements() == 1; };
  EXPECT_THAT(fault_of(tensor_parallel(), {.mesh = every(sums_squares, {})}),
              AllOf(HasSubstr("clip: gradient_factor"), HasSubstr("partial over")));
  EXPECT_THAT(fault_of(tensor_parallel(), {.mesh = every(sums_squares, {data_group})}),
              AllOf(HasSubstr("clip: gradient_factor"), HasSubstr("partial over tp")));
}

TEST(LayoutTypeFaults, AMissingReductionOfGradients) {
  for (const Layout& layout : {Layout{.replicate = 3}, Layout{.shard = 3}, Layout{.replicate = 2, .tp = 2, .pp = 2}})
    EXPECT_THAT(fault_of(config_of(layout), {.mesh = every(reduces_gradients, {})}),
                AllOf(HasSubstr("clip: sum_of_squares of the gradient of "), HasSubstr("partial over dp_")));
  EXPECT_THAT(fault_of(config_of({.shard = 3}), {.mesh = every(reduces_gradients, {shard_group, shard_group})}),
              AllOf(HasSubstr("reduce_scatter of the gradient of"), HasSubstr("sharded(0) over dp_shard"),
                    HasSubstr("different parts")));
  EXPECT_THAT(
      fault_of(config_of({.replicate = 3}), {.mesh = every(reduces_gradients, {replicate_group, replicate_group})}),
      HasSubstr("would count it 3 times"));
}

TEST(LayoutTypeFaults, ACountOfTargetsThatEachRankKeepsForItself) {
  const auto counts = [](const Collective& c) { return c.group == data_group; };
  EXPECT_THAT(
      fault_of(config_of({.replicate = 2}), {.mesh = every(counts, {})}),
      AllOf(HasSubstr("clip: gradient_factor"), HasSubstr("num_targets"), HasSubstr("is partial over dp_replicate")));
  EXPECT_THAT(fault_of(tensor_parallel(), {.mesh = every(counts, {world_group})}),
              AllOf(HasSubstr("count_tokens: all_reduce of the number of targets"), HasSubstr("over tp")));
}

TEST(LayoutTypeFaults, ParametersThatAreNotGathered) {
  const auto gathers = [](const Collective& c) { return c.kind == CommKind::all_gather && c.group == shard_group; };
  EXPECT_THAT(fault_of(config_of({.shard = 3}), {.mesh = every(gathers, {})}),
              AllOf(HasSubstr("after the step"), HasSubstr("over dp_shard")));
}

TEST(LayoutTypeFaults, ParametersThatAreCutAndNotGathered) {
  const auto gathers = [](const Collective& c) { return c.kind == CommKind::all_gather && c.group == shard_group; };
  EXPECT_THAT(
      fault_of(config_of({.shard = 2, .zero = 3}), {.mesh = every(gathers, {})}),
      AllOf(HasSubstr("forward stage 0 microbatch 0"),
            HasSubstr("embedding of model.embed_tokens.weight: w is read, but not all of it was ever written")));
  EXPECT_THAT(fault_of(config_of({.shard = 2, .zero = 3}), {.mesh = at(2, gathers, {})}),
              HasSubstr("was ever written"));
}

TEST(LayoutTypeFaults, AMicrobatchWhoseGradientsAreNotReduced) {
  const auto scatters = [](const Collective& c) {
    return c.kind == CommKind::reduce_scatter && c.group == shard_group;
  };
  for (const int level : {2, 3})
    EXPECT_THAT(fault_of(config_of({.shard = 2, .microbatches = 3, .zero = level}), {.mesh = at(4, scatters, {})}),
                AllOf(HasSubstr("add of the gradient of "), HasSubstr("partial over dp_shard")));
}

TEST(LayoutTypeFaults, ReplicasOfAShardedModel) {
  const auto sums_parts = [](const Collective& c) {
    return c.kind == CommKind::all_reduce && c.group == replicate_group;
  };
  const RunConfig config = config_of({.replicate = 2, .shard = 2, .zero = 3});
  EXPECT_EQ(fault_of(config, {}), "");
  EXPECT_THAT(fault_of(config, {.mesh = every(sums_parts, {})}),
              AllOf(HasSubstr("clip: sum_of_squares of the gradient of "), HasSubstr("partial over dp_replicate")));
  EXPECT_THAT(fault_of(config, {.mesh = every(sums_parts, {shard_group})}),
              AllOf(HasSubstr("the gradient of "), HasSubstr("over dp_shard")));
}

TEST(LayoutTypeFaults, TheSoftmaxOfAVocabularyThatIsCut) {
  const auto takes_max = [](const Collective& c) { return c.op == ReduceOp::max; };
  const auto sums_rows = [](const Collective& c) {
    return c.kind == CommKind::all_reduce && c.x.sizes.num_dims() == 2 && c.x.size(0) == 2;
  };
  const auto skip_rescaling = [](StoredOperation& operation) { return kind_of(operation) != OpKind::rescale_sums; };
  EXPECT_THAT(fault_of(tensor_parallel(), {.mesh = every(takes_max, {})}),
              AllOf(HasSubstr("rescale_sums"), HasSubstr("maximum of each rank's part over tp")));
  EXPECT_THAT(fault_of(tensor_parallel(), {.mesh = every(sums_rows, {})}),
              AllOf(HasSubstr("cross_entropy"), HasSubstr("partial over tp")));
  EXPECT_THAT(fault_of(tensor_parallel(), {.ops = skip_rescaling}), HasSubstr("must be rescaled before it is summed"));
}

TEST(LayoutTypeFaults, APartThatBeginsElsewhere) {
  const auto shift_rows = [](StoredOperation& operation) {
    if (auto* args = std::get_if<EmbeddingArgs>(&operation)) args->first_row += 1;
    return true;
  };
  const auto shift_columns = [](StoredOperation& operation) {
    if (auto* args = std::get_if<RowExpArgs>(&operation)) args->first_column += 1;
    return true;
  };
  const auto forget_positions = [](StoredOperation& operation) {
    if (auto* args = std::get_if<PositionsArgs>(&operation)) args->first_token = 0;
    return true;
  };
  EXPECT_THAT(fault_of(tensor_parallel(), {.ops = shift_rows}),
              AllOf(HasSubstr("embedding of model.embed_tokens.weight"), HasSubstr("starts at 0, but 1")));
  EXPECT_THAT(fault_of(tensor_parallel(), {.ops = shift_columns}),
              AllOf(HasSubstr("row_exp"), HasSubstr("starts at 0, but 1 is given")));
  EXPECT_THAT(
      fault_of(config_of({.tp = 2, .sequence_parallel = true, .family = Family::gpt2}), {.ops = forget_positions}),
      AllOf(HasSubstr("add_positions of model.embed_positions.weight"), HasSubstr("starts at token 8")));
}

TEST(LayoutTypeFaults, WhatIsGatheredAlongAnotherDimThanItIsCut) {
  // Features in place of tokens: the swiglu's output is handed to the next gather of tokens.
  const auto shares = std::make_shared<Tensor>();
  const auto keep = [shares](StoredOperation& operation) {
    if (const auto* args = std::get_if<SwigluArgs>(&operation)) *shares = args->y;
    return true;
  };
  Plant plant{.ops = keep};
  plant.shard = [shares](Tensor full, Tensor shard) {
    return shares->exists() && full.sizes.num_dims() == 2
               ? shares->flat().rows(0, shard.num_elements()).reshaped(shard.sizes)
               : shard;
  };
  EXPECT_THAT(fault_of(sequence_parallel(), plant), AllOf(HasSubstr("all_gather behind model.layers.0.mlp"),
                                                          HasSubstr("over tp, but parts are joined along dim 0")));
}

}  // namespace
}  // namespace echelon::testing
