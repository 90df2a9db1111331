// Injected faults are named, with kind, axis and tensor, from the values only. `verify` gets no more than a run to
// observe.
#include "verify/verify.h"

#include "base/error.h"
#include "data/masked_batches.h"
#include "spec/groups.h"
#include "verify/activations.h"
#include "verify/plants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

struct Degrees {
  int replicate = 1, shard = 1, tp = 1, pp = 1;
  bool sequence_parallel = false;
  bool tied = false;
  int microbatches = 2;
  Family family = Family::llama;
  int micro_batch_size = 1;
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  BlockOperations recompute = {};
  int zero_level = 1;
  int kv_heads = 2;  // GPT-2 has as many as query heads
};

RunConfig config_of(const Degrees& degrees) {
  RunConfig config;
  ModelSpec& model = config.model;
  model = family_defaults(degrees.family);
  model.num_attention_heads = 4;
  model.num_key_value_heads = degrees.family == Family::gpt2 ? 4 : degrees.kv_heads;
  model.head_dim = 4;
  model.hidden_size = 16;
  model.num_hidden_layers = 4;
  model.intermediate_size = 27;
  model.vocab_size = 41;
  model.max_position_embeddings = 32;
  model.initializer_range = 0.15;
  model.tie_word_embeddings = degrees.tied;
  config.training.steps = 3;
  config.training.seq_len = 16;
  config.training.micro_batch_size = degrees.micro_batch_size;
  config.training.global_batch_size =
      degrees.micro_batch_size * degrees.microbatches * degrees.replicate * degrees.shard;
  config.training.dtype = DType::float64;
  config.optimizer.lr = 1e-2;
  config.optimizer.eps = 1e-7;
  config.parallelism.data_parallel_replicate_degree = degrees.replicate;
  config.parallelism.data_parallel_shard_degree = degrees.shard;
  config.parallelism.tensor_parallel_degree = degrees.tp;
  config.parallelism.sequence_parallel = degrees.sequence_parallel;
  config.parallelism.pipeline_parallel_degree = degrees.pp;
  config.parallelism.pipeline_parallel_schedule = degrees.schedule;
  config.training.recompute = degrees.recompute;
  config.parallelism.zero_level = degrees.zero_level;
  return config;
}

Verdict verdict_of(const RunConfig& config, const Interpose& interpose) {
  const FormulaTokens tokens(1, config.model.vocab_size);
  const UnevenTargets batches(tokens, 1);
  return verify(config, batches, {.interpose = interpose});
}

struct Planted {
  std::string name;
  Degrees degrees;
  Seed seed;
  FaultKind kind;
  std::string axis, tensor;   // `tensor`: what the finding's tensor must contain
  std::string evidence = "";  // what its evidence must contain
};

void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.name; }

// Claim (checks): `echelon verify` names what is wrong with a layout: nine kinds of injected
//   faults (a missing sum, a stale tied weight, ...) in layers, axes, levels of ZeRO, schedules,
//   microbatches and steps.
// Bound: kind, axis and tensor of each of 78 faults; layouts without a fault are equal.
// Tests: Plants
class Plants : public ::testing::TestWithParam<Planted> {};

TEST_P(Plants, AreNamed) {
  const Planted& planted = GetParam();
  const Verdict verdict = verdict_of(config_of(planted.degrees), grow(planted.seed));
  ASSERT_FALSE(verdict.is_equal());
  const Finding& finding = verdict.diagnosis->finding;
  SCOPED_TRACE(verdict.diagnosis->sentence());
  RecordProperty("sentence", verdict.diagnosis->sentence());
  EXPECT_EQ(name_of(finding.kind), name_of(planted.kind));
  EXPECT_EQ(finding.axis, planted.axis);
  EXPECT_NE(finding.tensor.find(planted.tensor), std::string::npos) << finding.tensor;
  EXPECT_NE(finding.evidence.find(planted.evidence), std::string::npos) << finding.evidence;
}

constexpr auto reduce = ActionKind::reduce_gradients, sum_replicas = ActionKind::sum_replicas,
               sum_tied = ActionKind::sum_tied;
const std::string embedding = "model.embed_tokens.weight", layer = "model.layers.";

std::vector<Planted> planted() {
  using enum FaultKind;
  const auto missing_gather_kind = FaultKind::missing_gather;
  const auto stale_tied = FaultKind::stale_tied_weight;
  const Degrees tp2 = {.tp = 2}, tp2_sp = {.tp = 2, .sequence_parallel = true},
                mixed = {.shard = 2, .tp = 2, .pp = 2, .sequence_parallel = true, .tied = true};
  const Degrees zb_v = {.tp = 2, .pp = 2, .tied = true, .microbatches = 4, .schedule = PipelineSchedule::zb_v};
  const Degrees interleaved = {
      .shard = 2, .pp = 2, .tied = true, .microbatches = 4, .schedule = PipelineSchedule::interleaved_one_f_one_b};
  const Degrees recomputed = {.tp = 2, .pp = 2, .sequence_parallel = true, .recompute = whole_block};
  return {
      // a sum that is omitted or computed twice: of activations, of their gradients, of weights' gradients
      {"MissingForward_tp2", tp2, sum_behind_product(layer + "1.self_attn.o_proj.weight", true, 0), missing_sum, "tp",
       "layers.1.self_attn.o_proj"},
      {"MissingForward_mixed", mixed, sum_behind_product(layer + "2.mlp.down_proj.weight", true, 0), missing_sum, "tp",
       "layers.2.mlp.down_proj"},
      {"MissingEmbedding_tp4", {.tp = 4}, sum_behind_product(embedding, true, 0), missing_sum, "tp", embedding},
      {"MissingBackward_tp2", tp2, sum_behind_product(layer + "2.mlp.up_proj.weight", false, 0), missing_sum, "tp",
       "layers.2.mlp.up_proj"},
      {"MissingBackward_sp", tp2_sp, sum_behind_product(layer + "0.self_attn.v_proj.weight", false, 0), missing_sum,
       "tp", "layers.0.self_attn.v_proj"},
      {"MissingGradient_replicate",
       {.replicate = 3},
       sum_of_gradient(layer + "2.mlp.up_proj.weight", reduce, 0),
       missing_sum,
       "dp_replicate",
       "layers.2"},
      {"MissingGradient_shard",
       {.shard = 2, .pp = 2},
       sum_of_gradient(layer + "3.mlp.up_proj.weight", reduce, 0),
       missing_sum,
       "dp_shard",
       "layers.3"},
      {"MissingReplicas_sp", tp2_sp, sum_of_gradient(layer + "1.input_layernorm.weight", sum_replicas, 0), missing_sum,
       "tp", "layers.1.input_layernorm"},
      {"MissingReplicas_kv",
       {.shard = 2, .tp = 4},
       sum_of_gradient(layer + "1.self_attn.k_proj.weight", sum_replicas, 0),
       missing_sum,
       "tp",
       "layers.1.self_attn.k_proj"},
      // gradients of keys and values where more tensor-parallel ranks than kv heads share them
      {"OneReplica_kv",
       {.shard = 2, .tp = 4},
       kv_gradients_of_one_replica(0),
       one_replica,
       "tp",
       "layers.3.self_attn.k_proj",
       "the query heads of replica 0 alone"},
      {"OneReplica_kv_norm",
       {.tp = 4, .pp = 2, .sequence_parallel = true, .family = Family::qwen3},
       kv_gradients_of_one_replica(1),
       one_replica,
       "tp",
       "layers.3.self_attn.k_norm",
       "the query heads of replica 1 alone"},
      {"OneReplica_kv_uneven",
       {.tp = 3, .kv_heads = 1},
       kv_gradients_of_one_replica(1),
       one_replica,
       "tp",
       "layers.3.self_attn.k_proj",
       "the query heads of replica 1 alone"},
      {"SummedTwice_kv",
       {.replicate = 2, .tp = 4},
       summed_kv_gradients(),
       repeated_sum,
       "tp",
       "layers.3.self_attn.k_proj",
       "summed once more"},
      {"MissingTied_pp2",
       {.pp = 2, .tied = true},
       sum_of_gradient(embedding, sum_tied, 0),
       missing_sum,
       "pp",
       embedding},
      {"MissingTied_mixed", mixed, sum_of_gradient(embedding, sum_tied, 0), missing_sum, "pp", embedding},
      {"DoubledForward_tp4",
       {.replicate = 2, .tp = 4},
       sum_behind_product(layer + "3.self_attn.o_proj.weight", true, 2),
       repeated_sum,
       "tp",
       "layers.3.self_attn.o_proj"},
      {"DoubledBackward_sp", tp2_sp, sum_behind_product(layer + "1.mlp.up_proj.weight", false, 2), repeated_sum, "tp",
       "layers.1.mlp.up_proj"},
      {"DoubledGradient_replicate",
       {.replicate = 3, .tp = 2},
       sum_of_gradient("model.norm.weight", reduce, 2),
       repeated_sum,
       "dp_replicate",
       "model.norm"},
      {"DoubledGradient_shard", mixed, sum_of_gradient(layer + "0.mlp.up_proj.weight", reduce, 2), repeated_sum,
       "dp_shard", "layers.0"},
      {"DoubledTied_pp4",
       {.pp = 4, .tied = true},
       sum_of_gradient(embedding, sum_tied, 2),
       repeated_sum,
       "pp",
       embedding},
      // means of means, of ranks or microbatches with unequal numbers of targets
      {"MeanOfMeans_replicate", {.replicate = 3}, mean_of_means_over_ranks(), mean_of_means, "dp_replicate", ""},
      {"MeanOfMeans_mixed", mixed, mean_of_means_over_ranks(), mean_of_means, "dp_shard", ""},
      {"MeanOfMeans_microbatches",
       {.pp = 2, .microbatches = 4},
       mean_of_means_over_microbatches(),
       mean_of_means,
       "microbatches",
       ""},
      {"MeanOfMeans_both",
       {.shard = 2, .microbatches = 3},
       mean_of_means_over_microbatches(),
       mean_of_means,
       "dp_shard+microbatches",
       ""},
      // parameters that the norm counts more or less often than once
      {"NormCountsNorms_tp2", tp2, counted_per_copy("norm.weight", Axis::tp), counted_twice, "tp",
       "layers.0.input_layernorm", "the 9 tensors"},
      {"NormCountsNorms_tp4",
       {.tp = 4, .pp = 2, .sequence_parallel = true},
       counted_per_copy("layernorm.weight", Axis::tp),
       counted_twice,
       "tp",
       "layers.0.input_layernorm",
       "the 8 tensors"},
      {"NormCountsOne_mixed", mixed, counted_per_copy("2.post_attention_layernorm.weight", Axis::tp), counted_twice,
       "tp", "layers.2.post_attention_layernorm"},
      {"NormCountsTied_pp2",
       {.pp = 2, .tied = true},
       counted_per_copy(embedding, Axis::pp),
       counted_twice,
       "pp",
       embedding},
      {"NormCountsReplicas_replicate",
       {.replicate = 3},
       counted_per_copy("", Axis::dp_replicate),
       counted_twice,
       "dp_replicate",
       ""},
      {"NormForgets_pp2", {.pp = 2}, not_counted_in_norm("model.norm"), not_counted, "", "model.norm"},
      // the second copy of a tied weight
      {"StaleTied_pp2",
       {.pp = 2, .tied = true},
       testing::stale_tied_weight(0, true),
       stale_tied,
       "pp",
       embedding,
       "head"},
      {"StaleTied_mixed", mixed, testing::stale_tied_weight(0, true), stale_tied, "pp", embedding, "head"},
      {"StaleTied_pp4_secondStep",
       {.pp = 4, .tied = true},
       testing::stale_tied_weight(2, true),
       stale_tied,
       "pp",
       embedding,
       "step before"},
      {"StaleTied_embedding",
       {.pp = 2, .tied = true},
       testing::stale_tied_weight(0, false),
       stale_tied,
       "pp",
       embedding,
       "embedding"},
      // microbatches that are lost
      {"LastMicrobatch_one",
       {.microbatches = 4},
       forgets_before(3, ""),
       lost_microbatches,
       "microbatches",
       "",
       "the last of 4"},
      {"LastMicrobatch_mixed", mixed, forgets_before(1, ""), lost_microbatches, "microbatches", "", "the last of 2"},
      {"LastMicrobatch_oneTensor",
       {.shard = 2, .pp = 2, .microbatches = 4},
       forgets_before(3, "layers.2.mlp.down_proj"),
       lost_microbatches,
       "microbatches",
       "layers.2.mlp.down_proj",
       "the last of 4"},
      {"FirstMicrobatch",
       {.replicate = 2, .microbatches = 3},
       forgets_before(1, "o_proj"),
       lost_microbatches,
       "microbatches",
       "o_proj",
       "microbatch 0 of 3 is missing"},
      // boundaries between shards
      {"ShardBorder_shard2", {.shard = 2}, wrong_shard_border(1, 5, true), wrong_boundary, "dp_shard", ""},
      {"ShardBorder_mixed", mixed, wrong_shard_border(1, 3, true), wrong_boundary, "dp_shard", ""},
      {"ShardBorder_end", {.shard = 4}, wrong_shard_border(2, 7, false), wrong_boundary, "dp_shard", ""},
      // positions of a split sequence
      {"Positions_rope_sp2", tp2_sp, positions_per_slice(""), wrong_position, "tp", "layers.0.self_attn",
       "from position 8"},
      {"Positions_rope_sp4",
       {.shard = 2, .tp = 4, .sequence_parallel = true},
       positions_per_slice("layers.2"),
       wrong_position,
       "tp",
       "layers.2.self_attn",
       "from position 4"},
      {"Positions_learned_sp2",
       {.tp = 2, .pp = 2, .sequence_parallel = true, .family = Family::gpt2},
       positions_per_slice(""),
       wrong_position,
       "tp",
       "layers.0",
       "from position 8"},
      // the same kinds with other placements of stages, with split backward passes, and with recomputed blocks
      {"MissingForward_zbv", zb_v, sum_behind_product(layer + "2.mlp.down_proj.weight", true, 0), missing_sum, "tp",
       "layers.2.mlp.down_proj"},
      {"MissingBackward_zbv", zb_v, sum_behind_product(layer + "1.mlp.up_proj.weight", false, 0), missing_sum, "tp",
       "layers.1.mlp.up_proj"},
      {"MissingGradient_interleaved", interleaved, sum_of_gradient(layer + "2.self_attn.q_proj.weight", reduce, 0),
       missing_sum, "dp_shard", "layers.2"},
      {"DoubledForward_recomputed", recomputed, sum_behind_product(layer + "1.self_attn.o_proj.weight", true, 2),
       repeated_sum, "tp", "layers.1.self_attn.o_proj"},
      {"MeanOfMeans_interleaved", interleaved, mean_of_means_over_ranks(), mean_of_means, "dp_shard", ""},
      {"LastMicrobatch_interleaved", interleaved, forgets_before(3, ""), lost_microbatches, "microbatches", "",
       "the last of 4"},
      {"StaleTied_interleaved", interleaved, testing::stale_tied_weight(1, true), stale_tied, "pp", embedding, "head"},
      {"Positions_rope_recomputed", recomputed, positions_per_slice("layers.1"), wrong_position, "tp",
       "layers.1.self_attn", "from position 8"},
      // with sharded gradients and parameters, and with replicas of a sharded model
      {"MissingForward_zero3",
       {.shard = 2, .tp = 2, .zero_level = 3},
       sum_behind_product(layer + "1.self_attn.o_proj.weight", true, 0),
       missing_sum,
       "tp",
       "layers.1.self_attn.o_proj"},
      {"DoubledBackward_zero3",
       {.shard = 2, .tp = 2, .zero_level = 3},
       sum_behind_product(layer + "2.mlp.up_proj.weight", false, 2),
       repeated_sum,
       "tp",
       "layers.2.mlp.up_proj"},
      {"MissingGradient_zero2",
       {.shard = 2, .pp = 2, .zero_level = 2},
       sum_of_gradient(layer + "2.mlp.up_proj.weight", reduce, 0),
       missing_sum,
       "dp_shard",
       "layers.2"},
      {"DoubledGradient_hybrid",
       {.replicate = 2, .shard = 3, .zero_level = 3},
       sum_of_gradient(layer + "1.mlp.up_proj.weight", ActionKind::reduce_gradients, 2),
       repeated_sum,
       "dp_shard",
       "layers.1"},
      {"MissingReplicas_zero3",
       {.shard = 2, .tp = 2, .sequence_parallel = true, .zero_level = 3},
       sum_of_gradient(layer + "1.input_layernorm.weight", sum_replicas, 0),
       missing_sum,
       "tp",
       "layers.1.input_layernorm"},
      {"MeanOfMeans_zero3",
       {.shard = 3, .zero_level = 3},
       mean_of_means_over_microbatches(),
       mean_of_means,
       "dp_shard+microbatches",
       ""},
      {"NormCountsNorms_zero3",
       {.shard = 2, .tp = 2, .zero_level = 3},
       counted_per_copy("norm.weight", Axis::tp),
       counted_twice,
       "tp",
       "layers.0.input_layernorm"},
      {"LastMicrobatch_zero2",
       {.shard = 2, .microbatches = 4, .zero_level = 2},
       forgets_before(3, ""),
       lost_microbatches,
       "microbatches",
       "",
       "the last of 4"},
      {"LastMicrobatch_zero3",
       {.replicate = 2, .shard = 2, .tied = true, .microbatches = 3, .zero_level = 3},
       forgets_before(2, "mlp"),
       lost_microbatches,
       "microbatches",
       "mlp",
       "the last of 3"},
      {"StaleTied_zero3",
       {.shard = 2, .pp = 2, .tied = true, .zero_level = 3},
       testing::stale_tied_weight(0, true),
       stale_tied,
       "pp",
       embedding,
       "head"},
      {"ShardBorder_zero2",
       {.shard = 2, .zero_level = 2},
       wrong_shard_border(1, 5, true),
       wrong_boundary,
       "dp_shard",
       ""},
      {"StaleReplica_hybrid",
       {.replicate = 2, .shard = 2, .zero_level = 3},
       stale_replica(1, "layers.1.mlp.down_proj"),
       stale_weight,
       "dp_replicate",
       "layers.1.mlp.down_proj"},
      // in one microbatch, on one rank, in one place only
      {"DoubledForward_microbatch",
       {.tp = 2, .microbatches = 3},
       sum_behind_product_in(2, layer + "1.mlp.down_proj.weight", 2),
       repeated_sum,
       "tp",
       "layers.1.mlp.down_proj"},
      {"LostPart_tp4",
       {.tp = 4},
       lost_part(2, layer + "0.self_attn.o_proj.weight"),
       missing_sum,
       "tp",
       "layers.0.self_attn.o_proj",
       "tensor-parallel rank 2 is missing"},
      {"LocalNorm_pp2", {.pp = 2}, local_norm(), missing_sum, "pp", "", "not summed over pp"},
      {"LocalNorm_shard3", {.shard = 3}, local_norm(), missing_sum, "dp_shard", "", "not summed over dp_shard"},
      {"LocalNorm_mixed",
       {.shard = 2, .tp = 2},
       local_norm(),
       missing_sum,
       "tp+dp_shard",
       "",
       "not summed over the ranks"},
      {"WrongSequences_shard",
       {.shard = 2, .microbatches = 4},
       wrong_sequences(1),
       wrong_sequence,
       "dp_shard",
       "layers.0.input_layernorm",
       "sequence 1 of the global batch has the values of sequence 3"},
      {"LateMessages_pp2",
       {.pp = 2, .microbatches = 3},
       late_messages(),
       wrong_message,
       "pp",
       "layers.2.input_layernorm",
       "microbatch 0 instead of 1"},
      {"WrongScatter_shard2", {.shard = 2}, wrong_scatter(1, 3), wrong_boundary, "dp_shard", "", "3 elements behind"},
      {"WrongGradientsInUpdate_shard2",
       {.shard = 2, .tp = 2},
       wrong_gradients_in_update(1, 2),
       wrong_boundary,
       "dp_shard",
       "",
       "the updates that belong 2 elements behind"},
      {"MissingGather_shard4",
       {.shard = 4},
       testing::missing_gather(),
       stale_weight,
       "dp_shard",
       embedding,
       "step before"},
      {"MissingGather_mixed", mixed, testing::missing_gather(), stale_weight, "dp_shard", "", "step before"},
      {"MissingTokens_sp2", tp2_sp, missing_tokens(1), missing_gather_kind, "tp", "layers.0.mlp", "zero"},
      {"StaleReplica",
       {.replicate = 2, .tp = 2},
       stale_replica(1, "layers.1.mlp.down_proj"),
       stale_weight,
       "dp_replicate",
       "layers.1.mlp.down_proj"},
      {"WrongUpdate",
       {.shard = 2},
       wrong_update("layers.1.mlp.down_proj"),
       unknown,
       "",
       "layers.1.mlp.down_proj",
       "with right gradients"},
  };
}

INSTANTIATE_TEST_SUITE_P(Of, Plants, ::testing::ValuesIn(planted()), [](const auto& row) { return row.param.name; });

// Two controls: no fault, and one that wraps a rank's backend and does nothing.
TEST(Controls, UnplantedLayoutsAreEqual) {
  for (const Degrees& degrees : {Degrees{.replicate = 2, .shard = 2, .pp = 2, .tied = true, .zero_level = 3},
                                 Degrees{.shard = 2, .tp = 2, .pp = 2, .sequence_parallel = true, .tied = true},
                                 Degrees{.replicate = 2, .tp = 4, .microbatches = 3}}) {
    EXPECT_TRUE(verdict_of(config_of(degrees), {}).is_equal());
    EXPECT_TRUE(verdict_of(config_of(degrees), grow([] { return std::make_unique<Plant>(); })).is_equal());
  }
}

// What a diagnosis would compare, where each rank has a part of the gradients of keys and values.
TEST(Controls, PartsOfSharedKvHeadsAreThoseOfOneRank) {
  for (const Degrees& degrees : {Degrees{.tp = 4}, Degrees{.tp = 3, .kv_heads = 1},
                                 Degrees{.tp = 4, .pp = 2, .schedule = PipelineSchedule::zb_h1},
                                 Degrees{.tp = 4, .sequence_parallel = true, .family = Family::qwen3}}) {
    const RunConfig config = config_of(degrees);
    const FormulaTokens tokens(1, config.model.vocab_size);
    const UnevenTargets batches(tokens, 1);
    const Blueprint blueprint(config);
    const Reference reference;
    const Interpose nothing;
    const Case at = {.blueprint = blueprint,
                     .batches = batches,
                     .interpose = nothing,
                     .reference = reference,
                     .differences = {},
                     .results = {},
                     .routers = {}};
    const Activations expected(at, 1);
    EXPECT_NE(expected.of({true, read_of_kv_parts("model.layers.0.self_attn.v_proj.weight")}), nullptr);
    for (const bool is_backward : {false, true}) {
      const FirstWrongRead first = first_wrong_read(at, expected, is_backward);
      EXPECT_TRUE(first.wrong.empty()) << describe_read(at, 1, first);
    }
  }
}

// A vocabulary of one token has no gradients at all, and with a learning rate of zero GPT-2's biases stay zeros.
TEST(Controls, ZerosAreEqual) {
  RunConfig one_token = config_of({.shard = 2});
  one_token.model.vocab_size = 1;
  EXPECT_TRUE(verdict_of(one_token, {}).is_equal());
  RunConfig at_rest = config_of({.shard = 2, .family = Family::gpt2});
  at_rest.optimizer.lr = 0;
  EXPECT_TRUE(verdict_of(at_rest, {}).is_equal());
}

// NaN is equal to nothing, so that each layout would differ from one rank.
TEST(Controls, ARunThatDivergesIsNotCompared) {
  RunConfig config = config_of({});
  config.optimizer.lr = 1e200;
  EXPECT_THAT([&] { (void)verdict_of(config, {}); },
              ::testing::ThrowsMessage<Failure>(
                  ::testing::AllOf(::testing::HasSubstr("of one rank has a "), ::testing::HasSubstr("the run diverges"),
                                   ::testing::HasSubstr("(use --steps=1 or a lower optimizer.lr = 1e+200)"))));
}

/// Doubles sums over tp; without tp a rank fails.
class DoubledAndLost final : public Plant {
 public:
  void begins(Place& place) override {
    if (place.mesh.shape().degree(Axis::tp) == 1) throw Failure("a rank is lost");
  }
  int times(Place& place, const Group& group, Tensor /*x*/) override {
    return group == tp_group && place.product.ends_with("1.mlp.down_proj.weight") && place.product_is_forward ? 2 : 1;
  }
};

// A layout without an axis that fails counts neither as equal nor as missing.
TEST(Diagnosis, TellsALayoutThatBreaksFromOneThatIsNotThere) {
  const Verdict verdict =
      verdict_of(config_of({.replicate = 2, .tp = 2}), grow([] { return std::make_unique<DoubledAndLost>(); }));
  ASSERT_FALSE(verdict.is_equal());
  ASSERT_EQ(verdict.diagnosis->fails_without.size(), 1U);
  EXPECT_THAT(verdict.diagnosis->fails_without.front(), ::testing::StartsWith("tp ("));
  EXPECT_THAT(verdict.diagnosis->sentence(), ::testing::HasSubstr("; the run fails without tp ("));
  EXPECT_THAT(verdict.diagnosis->sentence(), ::testing::HasSubstr("a rank is lost"));
  EXPECT_THAT(verdict.diagnosis->stays_without, ::testing::Contains("dp_replicate"));
}

}  // namespace
}  // namespace echelon::testing
