#include "report/step_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>

namespace echelon {
namespace {

using testing::HasSubstr;

StepReport example() {
  return {.step = 7,
          .loss = 3.123456789,
          .grad_norm = 1.5,
          .lr = 0.1 + 0.2,
          .tokens = 4096,
          .step_seconds = 0.5,
          .memory_peak_bytes = std::int64_t{1} << 29,
          .memory_total_bytes = std::int64_t{1} << 33,
          .world_size = 4,
          .comm_bytes = {{"dp_shard", 123456789012345}, {"tp", 7}}};
}

TEST(StepLine, IsTheLineThatTorchtitanPrintsAndMore) {
  StepReport report = example();
  report.tokens_per_second = 4938270;  // over 4 ranks
  report.tflops = 4938.272;
  EXPECT_EQ(step_line(report),
            "step:  7  loss:  3.12346  grad_norm:  1.5000  memory:  0.50GiB(6.25%)  tps: 1,234,568  tflops: 1,234.57  "
            "mfu: N/A  lr: 3.000e-01  seconds: 0.5  tokens/s of 4 ranks: 4,938,270");
  report.mfu = 41.256;
  report.step = 12345;
  report.tflops = 0.5;
  report.tokens_per_second = 999 * 4;
  EXPECT_EQ(
      step_line(report),
      "step: 12345  loss:  3.12346  grad_norm:  1.5000  memory:  0.50GiB(6.25%)  tps: 999  tflops: 0.12  mfu: 41.26%  "
      "lr: 3.000e-01  seconds: 0.5  tokens/s of 4 ranks: 3,996");
}

TEST(StepLine, SaysTheLossScaleAndWhatWasSkipped) {
  StepReport report = example();
  EXPECT_TRUE(nlohmann::json::parse(to_json(report)).at("loss_scale").is_null());
  EXPECT_FALSE(nlohmann::json::parse(to_json(report)).at("skipped").get<bool>());
  report.loss_scale = 65536;
  EXPECT_THAT(step_line(report), HasSubstr("mfu: N/A  loss_scale: 65536  lr:"));
  report.is_skipped = true;
  EXPECT_THAT(step_line(report), HasSubstr("mfu: N/A  loss_scale: 65536  skipped: gradients overflowed  lr:"));
  EXPECT_EQ(nlohmann::json::parse(to_json(report)).at("loss_scale").get<double>(), 65536);
  EXPECT_TRUE(nlohmann::json::parse(to_json(report)).at("skipped").get<bool>());
}

// A rank without a layer of experts has no rounds, and knows the loads of all layers.
TEST(StepLine, HasTheLoadsOfRanksWithoutRounds) {
  StepReport report = example();
  report.moe = MoeReport{.max_load = {1.5}, .max_rank_load = {1.25}};
  const nlohmann::json moe = nlohmann::json::parse(to_json(report)).at("moe");
  EXPECT_EQ(moe.at("max_rank_load"), std::vector<double>{1.25});
  EXPECT_FALSE(moe.contains("rounds"));
}

TEST(StepLine, SaysHowUnevenThePairsAre) {
  StepReport report = example();
  EXPECT_TRUE(nlohmann::json::parse(to_json(report)).at("cp_imbalance").is_null());
  EXPECT_THAT(step_line(report), testing::Not(HasSubstr("imbalance")));
  report.cp_imbalance = 1.0625;
  report.data_imbalance = 1.5;
  EXPECT_THAT(step_line(report), HasSubstr("  cp_imbalance: 1.062  data_imbalance: 1.500"));
  EXPECT_EQ(nlohmann::json::parse(to_json(report)).at("data_imbalance").get<double>(), 1.5);
}

TEST(StepLine, SaysWhatDocumentsLeave) {
  StepReport report = example();
  EXPECT_TRUE(nlohmann::json::parse(to_json(report)).at("planned_pairs").is_null());
  EXPECT_THAT(step_line(report), testing::Not(HasSubstr("pairs")));
  report.pairs = {1234, 56789};
  report.cp_bytes = {7, 4096};
  EXPECT_THAT(step_line(report), HasSubstr("  pairs: 1,234 of 56,789  cp_bytes: 7 of 4,096"));
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json.at("pairs").get<std::int64_t>(), 1234);
  EXPECT_EQ(json.at("planned_pairs").get<std::int64_t>(), 56789);
  EXPECT_EQ(json.at("cp_bytes").get<std::int64_t>(), 7);
  EXPECT_EQ(json.at("planned_cp_bytes").get<std::int64_t>(), 4096);
}

TEST(StepLine, SurvivesWhatIsNotFinite) {
  StepReport report = example();
  report.loss = std::nan("");
  report.grad_norm = std::numeric_limits<double>::infinity();
  report.tokens_per_second = std::numeric_limits<double>::infinity();
  report.memory_total_bytes = 0;
  const std::regex form(
      "step:  7  loss: +nan  grad_norm: +inf  memory:  0.50GiB\\(N/A\\)  tps: inf  tflops: 0.00  mfu: N/A  "
      "lr: 3.000e-01  seconds: 0.5  tokens/s of 4 ranks: inf");
  EXPECT_TRUE(std::regex_match(step_line(report), form)) << step_line(report);
  EXPECT_TRUE(nlohmann::json::parse(to_json(report))["loss"].is_null());
}

TEST(StepJson, ReadsBackAsTheSameBits) {
  StepReport report = example();
  for (const double value : {1.0 / 3, 0.1 + 0.2, 4.9e-324, 1.7976931348623157e308, 2.5e-5}) {
    report.loss = value;
    const auto json = nlohmann::json::parse(to_json(report));
    EXPECT_EQ(json["loss"].get<double>(), value);
    EXPECT_EQ(json["lr"].get<double>(), report.lr);
  }
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_TRUE(json["mfu"].is_null());
  EXPECT_EQ(json["comm_bytes"]["dp_shard"].get<std::int64_t>(), 123456789012345);
  for (const char* key : {"step", "tokens", "epoch", "step_seconds", "tokens_per_second", "tflops", "memory_peak_bytes",
                          "world_size", "grad_norm"})
    EXPECT_TRUE(json[key].is_number()) << key;
  EXPECT_EQ(to_json(report).find('\n'), std::string::npos);
}

TEST(StepJson, HasWhatWasPredictedBesideWhatWasMeasured) {
  StepReport report = example();
  EXPECT_TRUE(nlohmann::json::parse(to_json(report)).at("predicted_step_seconds").is_null());
  EXPECT_TRUE(nlohmann::json::parse(to_json(report)).at("predicted_memory_bytes").is_null());
  report.predicted_step_seconds = 0.1 + 0.2;
  report.predicted_memory_bytes = (std::int64_t{1} << 53) + 1;
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["predicted_step_seconds"].get<double>(), 0.1 + 0.2);
  EXPECT_EQ(json["predicted_memory_bytes"].get<std::int64_t>(), (std::int64_t{1} << 53) + 1);
}

TEST(Rates, FollowFromTokensAndSeconds) {
  StepReport report = example();
  set_rates(report, 1e9, 1e14);
  EXPECT_DOUBLE_EQ(report.tokens_per_second, 8192);
  EXPECT_DOUBLE_EQ(report.tflops, 8.192);
  EXPECT_DOUBLE_EQ(report.mfu.value(), 8.192);
  set_rates(report, 1e9, std::nullopt);
  EXPECT_FALSE(report.mfu.has_value());
}

// Each matmul of m tokens with a k x n weight takes 2 m k n flops, twice more in backward; scores and their sum take 2
// x 2 T d_head per head and token.
TEST(Flops, EqualTheProductsOfTheModel) {
  const std::int64_t T = 64;
  for (const auto name : {"llama-1m", "llama-10m", "gpt2-124m", "qwen3-0.6b"}) {
    const ModelSpec m = preset(name);
    const std::int64_t Q = m.num_attention_heads * m.head_dim, KV = m.num_key_value_heads * m.head_dim;
    const std::int64_t projections =
        m.hidden_size * (2 * Q + 2 * KV) + (is_gated(m.mlp) ? 3 : 2) * m.hidden_size * m.intermediate_size;
    const std::int64_t per_layer = 2 * projections + 4 * T * Q;
    const double expected =
        3.0 * static_cast<double>(m.num_hidden_layers * per_layer + 2 * m.vocab_size * m.hidden_size);
    // Norms and biases count as parameters too.
    EXPECT_NEAR(model_flops_per_token(m, T) / expected, 1, 2e-3) << name;
  }
}

TEST(Evaluation, LineAndJson) {
  const EvaluationReport report{.step = 100, .loss = 3.0, .tokens = 65536, .seconds = 2};
  EXPECT_EQ(evaluation_line(report), "validate step: 100  loss:  3.00000  perplexity: 20.09  tokens: 65,536");
  EvaluationReport forced = report;
  forced.has_forced_balance = true;
  EXPECT_EQ(evaluation_line(forced), evaluation_line(report) + "  balance: forced");
  EXPECT_EQ(nlohmann::json::parse(to_json(forced))["force_balance"], true);
  EXPECT_FALSE(nlohmann::json::parse(to_json(report)).contains("force_balance"));
  EXPECT_EQ(nlohmann::json::parse(to_json(report))["validation_loss"].get<double>(), 3.0);
}

}  // namespace
}  // namespace echelon
