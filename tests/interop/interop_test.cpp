// Echelon against the float64 oracle in PyTorch, on folders that transformers wrote: logits, loss, every gradient, 20
// steps of AdamW.
#include "interop/comparison.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace echelon::testing {
namespace {

class Interop : public ::testing::TestWithParam<std::tuple<const char*, Precision>> {
 protected:
  Fixture fixture_{std::get<0>(GetParam())};
  Precision precision_ = std::get<1>(GetParam());
};

// Claim (reference): 62 tiny models of all 22 families, with each kind of RoPE, give
//   PyTorch's logits, loss and every gradient.
// Bound: 1e-10 in float64, 1e-5 in float32.
// Tests: Interop
TEST_P(Interop, LogitsLossAndEveryGradient) { expect_first_step(fixture_, precision_); }

// Each rank has a third of the tokens, and the keys of the others come by; windows end at any of them.
TEST_P(Interop, EveryGradientOfContextParallelRanks) {
  for (const LoadBalancer balancer : {LoadBalancer::headtail, LoadBalancer::striped, LoadBalancer::none}) {
    RunConfig config = fixture_.config(precision_.dtype);
    config.parallelism.context_parallel_degree = 3;
    config.parallelism.context_parallel_load_balancer = balancer;
    Outcome outcome;
    run(fixture_, config, {0.0}, outcome);
    EXPECT_LE(error(outcome.losses, fixture_.expected.at("loss"), 0), precision_.values);
    expect_gradients(fixture_.model, fixture_.expected, outcome.gradients, precision_.values);
  }
}

// The same out of a layout: tensor 2 with sequence parallelism, pipeline 2, ZeRO-1 over 2.
TEST_P(Interop, EveryGradientOfALayout) {
  RunConfig config = fixture_.config(precision_.dtype);
  config.training.micro_batch_size = 1;
  config.parallelism.data_parallel_shard_degree = 2;
  config.parallelism.tensor_parallel_degree = 2;
  config.parallelism.sequence_parallel = true;
  config.parallelism.pipeline_parallel_degree = 2;
  Outcome outcome;
  run(fixture_, config, {0.0}, outcome);
  EXPECT_LE(error(outcome.losses, fixture_.expected.at("loss"), 0), precision_.values);
  expect_gradients(fixture_.model, fixture_.expected, outcome.gradients, precision_.values);
}

// Claim (reference): 20 AdamW steps with warm-up and clipping give PyTorch's losses and weights.
// Bound: losses to 1e-10 in float64, weights to 1e-9.
// Tests: TwentyStepsOfAdamW
TEST_P(Interop, TwentyStepsOfAdamW) { expect_training(fixture_, precision_); }

// Attention within documents, which PyTorch's oracle masks block by block: one rank, and a layout.
TEST_P(Interop, TwentyStepsOfDocuments) {
  RunConfig config = fixture_.config(precision_.dtype);
  config.training.global_batch_size = 4;
  config.training.max_norm = 1.0;
  config.data.reset_attention_mask = true;
  for (const std::int64_t degree : {1, 2}) {
    config.training.micro_batch_size = 2 / degree;
    config.parallelism.tensor_parallel_degree = degree;
    config.parallelism.pipeline_parallel_degree = degree;
    Outcome outcome;
    run(fixture_, config, fixture_.expected.at("train.lr"), outcome);
    EXPECT_LE(error(outcome.losses, fixture_.expected.at("documents.loss"), 0), precision_.losses) << degree;
    EXPECT_LE(error(outcome.grad_norms, fixture_.expected.at("documents.grad_norm"), 0), 10 * precision_.losses)
        << degree;
  }
}

constexpr const char* names[] = {"gpt2",
                                 "llama",
                                 "llama_tied",
                                 "qwen2",
                                 "qwen3",
                                 "qwen2_window",
                                 "mistral",
                                 "mixtral",
                                 "qwen3_moe",
                                 "dots1",
                                 "phi3",
                                 "starcoder2",
                                 "llama_biases",
                                 "qwen3_yarn",
                                 "phi3_long",
                                 "phi3_short",
                                 "smollm3",
                                 "ministral3",
                                 "olmo2",
                                 "olmo3",
                                 "granite",
                                 "gpt_neox",
                                 "gpt_neox_serial",
                                 "gemma2",
                                 "gemma3_text",
                                 "gemma3",
                                 "mistral3",
                                 "olmoe",
                                 "qwen2_moe",
                                 "deepseek_v3",
                                 "deepseek_v3_dense",
                                 "deepseek_v2",
                                 "deepseek_v2_groups"};

INSTANTIATE_TEST_SUITE_P(Fixtures, Interop,
                         ::testing::Combine(::testing::ValuesIn(names),
                                            ::testing::Values(Precision{DType::float64, 1e-10, 1e-10},
                                                              Precision{DType::float32, 1e-5, 1e-5})),
                         [](const ::testing::TestParamInfo<Interop::ParamType>& parameters) {
                           return std::string(std::get<0>(parameters.param)) + "_" +
                                  std::string(name_of(std::get<1>(parameters.param).dtype));
                         });

class PackedInterop : public ::testing::TestWithParam<const char*> {
 protected:
  PackedInterop() {
    config_.data.reset_attention_mask = config_.data.reset_position_ids = config_.data.eod_mask_loss = true;
  }
  void run_packed(Outcome& outcome) const { run(fixture_, config_, {0.0}, outcome, documents_of_text(config_.data)); }
  [[nodiscard]] std::vector<double> losses() const {
    Outcome outcome;
    run_packed(outcome);
    return outcome.losses;
  }
  void expect_equal() const {
    Outcome actual;
    run_packed(actual);
    EXPECT_LE(error(actual.losses, expected_.at("loss"), 0), 1e-9);
    expect_gradients(fixture_.model, expected_, actual.gradients, 1e-9);
  }

  Fixture fixture_{GetParam()};
  TensorValues expected_ = read_all(fixture_.folder / "packed.safetensors");
  RunConfig config_ = fixture_.config(DType::float64);
};

// Claim (reference): Packed documents give PyTorch's loss and every gradient, on one rank and on
//   four with every method and balancer, with positions and targets of each document by itself.
// Bound: 1e-9 in float64.
// Tests: PackedInterop
TEST_P(PackedInterop, LossAndEveryGradientOnOneRankAndOnFour) {
  for (const Packing packing : {Packing::stream, Packing::best_fit}) {
    SCOPED_TRACE(name_of(packing));
    config_.data.packing = packing;
    ASSERT_EQ(documents_of_text(config_.data).windows_per_epoch(config_.training.seq_len), 2);
    config_.parallelism = {};
    expect_equal();
    config_.parallelism.context_parallel_degree = 4;
    using enum ContextMethod;
    for (const ContextMethod method : {ring, all_gather, ulysses, ulysses_ring})
      for (const LoadBalancer balancer : load_balancers) {
        SCOPED_TRACE(fmt::format("{} {}", name_of(method), name_of(balancer)));
        config_.parallelism.context_parallel_method = method;
        config_.parallelism.context_parallel_ulysses_degree = method == ulysses_ring ? 2 : 0;
        config_.parallelism.context_parallel_load_balancer = balancer;
        expect_equal();
      }
  }
}

// Each of the three keys matters; without the mask PyTorch's loss shows that positions alone start again.
TEST_P(PackedInterop, LossOfDocumentsDependsOnEveryKey) {
  config_.parallelism.context_parallel_degree = 4;
  config_.data.reset_attention_mask = false;
  EXPECT_LE(error(losses(), expected_.at("loss_across"), 0), 1e-9);
  config_.data.reset_position_ids = false;
  EXPECT_GT(error(losses(), expected_.at("loss_across"), 0), 1e-6);
  config_.data.reset_attention_mask = config_.data.reset_position_ids = true;
  config_.data.eod_mask_loss = false;
  EXPECT_GT(error(losses(), expected_.at("loss"), 0), 1e-3);
}

class BalancedInterop : public ::testing::TestWithParam<std::tuple<const char*, Precision>> {};

// Claim (reference): The losses of routers, their gradients and 20 steps of AdamW with them are
//   those of PyTorch, on one rank and on layouts.
// Bound: 1e-9 in float64, 1e-5 in float32; loads equal.
// Tests: BalancedInterop
TEST_P(BalancedInterop, GradientsAndTwentySteps) {
  const auto& [name, precision] = GetParam();
  const Fixture fixture(name);
  const TensorValues expected = read_all(fixture.folder / "balanced.safetensors");
  RunConfig config = fixture.config(precision.dtype);
  const std::vector<double>& coefficients = expected.at("coefficients");
  config.moe = {.seq_aux_loss_coeff = coefficients[0],
                .global_aux_loss_coeff = coefficients[1],
                .z_loss_coeff = coefficients[2],
                .bias_update_rate = coefficients[3]};
  for (const std::int64_t degree : {1, 2, 3}) {  // 2: tensor and pipeline; 3: context, of which a rank has parts
    config.parallelism.tensor_parallel_degree = config.parallelism.pipeline_parallel_degree = degree == 2 ? 2 : 1;
    config.parallelism.context_parallel_degree = degree == 3 ? 3 : 1;
    config.training.global_batch_size = 2;
    config.training.micro_batch_size = degree == 2 ? 1 : 2;
    config.training.max_norm = 0;
    Outcome first, trained;
    run(fixture, config, {0.0}, first);
    expect_gradients(fixture.model, expected, first.gradients, precision.values);
    config.training.global_batch_size = 4;
    config.training.max_norm = 1.0;
    run(fixture, config, fixture.expected.at("train.lr"), trained);
    EXPECT_LE(error(trained.losses, expected.at("train.loss"), 0), precision.losses) << degree;
    EXPECT_LE(error(trained.grad_norms, expected.at("train.grad_norm"), 0), 10 * precision.losses) << degree;
    EXPECT_LE(error(trained.router_losses, expected.at("train.router_losses"), 0), precision.losses) << degree;
    EXPECT_EQ(trained.loads, expected.at("train.loads")) << degree;
    if (expected.contains("train.bias")) {
      EXPECT_EQ(trained.bias, expected.at("train.bias")) << degree;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, BalancedInterop,
                         ::testing::Combine(::testing::Values("mixtral", "qwen3_moe", "dots1", "olmoe", "qwen2_moe",
                                                              "deepseek_v3", "deepseek_v2", "deepseek_v2_groups"),
                                            ::testing::Values(Precision{DType::float64, 1e-10, 1e-10},
                                                              Precision{DType::float32, 1e-5, 1e-5})),
                         [](const ::testing::TestParamInfo<BalancedInterop::ParamType>& parameters) {
                           return std::string(std::get<0>(parameters.param)) + "_" +
                                  std::string(name_of(std::get<1>(parameters.param).dtype));
                         });

INSTANTIATE_TEST_SUITE_P(Fixtures, PackedInterop, ::testing::Values("gpt2", "llama"));

// What tests/interop/compare_written.py loads in transformers: folders written by a layout of eight ranks, of which
// four have the experts of a layer if they divide by four, and Echelon's logits of them.
TEST(InteropFolders, AreWrittenFromALayoutAsTheyWereRead) {
  for (const char* name : names) {
    const Fixture fixture(name);
    const std::filesystem::path folder = std::filesystem::path(ECHELON_BINARY_DIR) / "interop" / name;
    RunConfig config = fixture.config(DType::float32);
    config.training.micro_batch_size = 1;
    config.parallelism.data_parallel_shard_degree = 2;
    config.parallelism.tensor_parallel_degree = 2;
    config.parallelism.pipeline_parallel_degree = 2;
    if (config.model.has_experts()) {
      config.parallelism.sequence_parallel = true;
      config.parallelism.expert_parallel_degree = std::gcd(config.model.mixture.num_experts, std::int64_t{4});
    }
    std::filesystem::create_directories(folder.parent_path());
    rewrite(fixture, config, folder);
    const auto original = read_all(fixture.folder / "model.safetensors"),
               written = read_all(folder / "model.safetensors");
    EXPECT_EQ(written, original) << name;
    Outcome outcome;
    run(fixture, fixture.config(DType::float64), {0.0}, outcome);
    write_logits(fixture, outcome.logits, folder / "logits.safetensors");
  }
}

}  // namespace
}  // namespace echelon::testing
