// Runs on mixtures of experts: a coefficient of their folder that is not applied, and routers with NaN.
#include "base/error.h"
#include "blueprint/small_config.h"
#include "checkpoint/model_reader.h"
#include "checkpoint/scratch_folder.h"
#include "data/indexed_dataset.h"
#include "train/report_log.h"
#include "train/train.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <limits>

namespace echelon::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class MixtureRun : public ::testing::Test {
 protected:
  /// A copy of a fixture whose config.json has `fields`, too.
  [[nodiscard]] std::filesystem::path model_with(const std::string& name, const nlohmann::json& fields) const {
    const std::filesystem::path folder = scratch_ / name;
    std::filesystem::copy(ECHELON_SOURCE_DIR "/tests/interop/fixtures/qwen3_moe", folder);
    nlohmann::json json = json_in(folder);
    json.update(fields);
    std::ofstream(folder / "config.json") << json;
    return folder;
  }
  static nlohmann::json json_in(const std::filesystem::path& folder) {
    return nlohmann::json::parse(std::ifstream(folder / "config.json"));
  }

  [[nodiscard]] RunConfig run_on(const std::filesystem::path& model) const {
    IndexedDatasetWriter writer((scratch_ / "data").string(), TokenType::u16);
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < 300; ++i) tokens.push_back(i * i % 23);
    writer.add_document(tokens);
    writer.publish();
    RunConfig config = small_config();
    config.model = read_model_spec(model);
    config.checkpoint.initial_load_path = model.string();
    config.data.path = (scratch_ / "data").string();
    config.training.steps = 3;
    config.training.seq_len = 8;
    config.output.dir = (scratch_ / ("out-" + model.filename().string())).string();
    return config;
  }

  ScratchFolder scratch_;
};

// Transformers multiplies another loss by it. Ours have keys of their own, and are off without them.
TEST_F(MixtureRun, KeepsTheCoefficientOfItsFolderAndDoesNotApplyIt) {
  std::vector<double> losses[2], norms[2];
  for (const int i : {0, 1}) {
    const double coefficient = i * 100.0;
    const auto model =
        model_with(fmt::format("model-{}", i), {{"router_aux_loss_coef", coefficient}, {"output_router_logits", true}});
    const RunConfig config = run_on(model);
    EXPECT_EQ(config.moe.seq_aux_loss_coeff, 0);
    EXPECT_EQ(config.moe.global_aux_loss_coeff, 0);
    ReportLog log;
    const nlohmann::json written = json_in(train(config, {.observer = &log}).model_folder);
    EXPECT_EQ(written.at("router_aux_loss_coef"), coefficient);
    EXPECT_EQ(written.at("output_router_logits"), true);
    for (const StepReport& step : log.steps) losses[i].push_back(step.loss), norms[i].push_back(step.grad_norm);
  }
  EXPECT_EQ(losses[0].size(), 3U);
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(norms[0], norms[1]);
}

/// Spoils a weight after the first step, on the ranks that have it.
class Spoiled final : public RunObserver {
 public:
  explicit Spoiled(std::string name) : name_(std::move(name)) {}
  void ended_step(const RankView& rank, std::int64_t step, const StepResult& /*result*/) override {
    for (Param* const param : rank.run.model().part().params())
      if (step == 1 && param->name == name_) rank.ops.fill(param->value, std::numeric_limits<double>::quiet_NaN());
  }

 private:
  std::string name_;
};

TEST_F(MixtureRun, NamesTheFirstLayerWhoseRouterHasNan) {
  RunConfig config = run_on(model_with("model", nlohmann::json::object()));
  config.model.set_num_layers(4);
  config.model.mixture.put_in_all_layers();
  config.checkpoint.initial_load_path.clear();
  config.training.global_batch_size = 8;
  for (const int pp : {1, 2}) {
    config.parallelism.pipeline_parallel_degree = pp;
    config.parallelism.data_parallel_shard_degree = 2;
    config.parallelism.expert_parallel_degree = config.model.mixture.num_experts % 2 == 0 ? 2 : 1;
    for (const int layer : {1, 2}) {
      Spoiled spoiled(fmt::format("model.layers.{}.mlp.gate.weight", layer));
      config.output.dir = (scratch_ / fmt::format("out-{}-{}", pp, layer)).string();
      EXPECT_THAT([&] { (void)train(config, {.observer = &spoiled}); },
                  ThrowsMessage<Error>(
                      AllOf(HasSubstr("step 2: the loss is"),
                            HasSubstr(fmt::format("the router of model.layers.{} is the first one with NaN", layer)))));
    }
  }
}

}  // namespace
}  // namespace echelon::testing
