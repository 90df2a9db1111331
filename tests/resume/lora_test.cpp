// Checkpoints of runs with adapters: these, their moments and the digest of the base, and nothing else.
#include "resume/small_run.h"

#include "checkpoint/base_digest.h"
#include "checkpoint/convert_model.h"
#include "checkpoint/hf/adapter/adapter_reader.h"
#include "checkpoint/hf/hf_reader.h"
#include "files/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace echelon::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class LoraResume : public SmallRun {
 protected:
  void SetUp() override {
    SmallRun::SetUp();
    for (const std::int64_t seed : {1, 2}) {  // the base, and another one
      RunConfig base = config(fmt::format("base-{}", seed));
      base.training.seed = seed;
      base.training.steps = 2;
      (void)run(base);
    }
  }
  [[nodiscard]] RunConfig lora_config(const std::string& folder) const {
    RunConfig config = this->config(folder);
    config.training.steps = 6;
    config.checkpoint.initial_load_path = (output("base-1") / "model").string();
    config.lora = {.rank = 2, .alpha = 4, .target_modules = {"q_proj", "down_proj"}};
    return config;
  }
  static RunConfig in_a_layout(RunConfig config) {
    config.parallelism.data_parallel_shard_degree = config.parallelism.tensor_parallel_degree = 2;
    config.parallelism.pipeline_parallel_degree = 2;
    config.parallelism.zero_level = 3;
    return config;
  }

  /// Interrupted after three steps: the same bits in the same layout, and equal values in another.
  void expect_resumed(const std::function<RunConfig(const std::string& folder)>& config_in, const Steps& expected,
                      const StateValues& state) {
    for (const bool changes_layout : {false, true}) {
      const std::string folder = changes_layout ? "other" : "same";
      RunConfig config = config_in(folder);
      (void)run(config, 3);
      if (changes_layout) config = in_a_layout(config);
      const Steps resumed = run(config);
      ASSERT_EQ(resumed.losses.size(), 3U);
      for (const auto& [step, loss] : resumed.losses)
        EXPECT_NEAR(loss, expected.losses.at(step), changes_layout ? 1e-11 * loss : 0) << step;
      EXPECT_LE(worst_difference(read_state(checkpoint(folder, 6)), state, 1e-3), changes_layout ? 1e-9 : 0);
    }
  }
};

// The same bits in the same layout. Checkpoints have the adapters, their moments and a digest of the base alone.
TEST_F(LoraResume, IsTheRunThatWasNotInterrupted) {
  const Steps expected = run(lora_config("plain"));
  const StateValues state = read_state(checkpoint("plain", 6));
  EXPECT_EQ(state.size(), 3 * adapter_parameters(lora_config("").model, lora_config("").lora).size());
  for (const auto& [name, values] : state) EXPECT_TRUE(is_of_adapter(name)) << name;
  EXPECT_EQ(StateReader(checkpoint("plain", 6)).manifest().base, digest_of_base(output("base-1") / "model"));
  expect_resumed([&](const std::string& folder) { return lora_config(folder); }, expected, state);
}

// Of a mixture they have none of the routers' biases, which stay those of the base, also where adapters are merged.
TEST_F(LoraResume, AMixtureKeepsItsRouters) {
  RunConfig base = config("mixture");
  use_experts(base, Family::deepseek_v3);
  base.training.steps = 2;
  base.moe.bias_update_rate = 0.05;
  (void)run(base);
  const auto config_in = [&](const std::string& folder) {
    RunConfig config = this->config(folder);
    use_experts(config, Family::deepseek_v3);
    config.training.steps = 6;
    config.checkpoint.initial_load_path = (output("mixture") / "model").string();
    config.lora = {.rank = 2, .alpha = 4};
    return config;
  };
  const Steps expected = run(config_in("plain"));
  const StateValues state = read_state(checkpoint("plain", 6));
  EXPECT_EQ(state.size(), 3 * adapter_parameters(config_in("").model, config_in("").lora).size());
  expect_resumed(config_in, expected, state);
  convert_model(output("mixture") / "model", output("merged"), {.merged = output("other") / "adapter"});
  const std::vector<float> bias = HuggingFaceReader(output("mixture") / "model").router_bias();
  EXPECT_THAT(bias, ::testing::Contains(::testing::Ne(0.0F)));
  EXPECT_EQ(HuggingFaceReader(output("merged")).router_bias(), bias);
  EXPECT_EQ(StateReader(checkpoint("other", 6)).manifest().scalars.routers.bias, bias);
}

TEST_F(LoraResume, RefusesAnotherBaseOrRank) {
  (void)run(lora_config("run"), 3);
  RunConfig other = lora_config("run");
  other.checkpoint.initial_load_path = (output("base-2") / "model").string();
  EXPECT_THAT([&] { (void)run(other); }, ThrowsMessage<Error>(HasSubstr("has adapters of another base than that of")));
  other = lora_config("run");
  other.lora.rank = 3;
  EXPECT_THAT([&] { (void)run(other); }, ThrowsMessage<Error>(HasSubstr("lora.rank: was 2, is 3")));
  other.lora = {};
  EXPECT_THAT([&] { (void)run(other); }, ThrowsMessage<Error>(HasSubstr("lora.rank: was 2, is 0")));
}

// Whatever the files of the base are: a checkpoint with master weights, the folder that its run wrote, or another one
// with the same values.
TEST_F(LoraResume, TheSameBaseMayComeInOtherFiles) {
  RunConfig base = config("base");
  base.training.dtype = DType::bfloat16;
  base.training.steps = 2;
  base.parallelism.data_parallel_shard_degree = 2;
  (void)run(base);
  convert_model(output("base") / "model", output("wider"), {.dtype = DType::float32});
  RunConfig first = lora_config("first");
  first.checkpoint.initial_load_path = checkpoint("base", 2).string();
  (void)run(first);
  const std::filesystem::path adapter = output("first") / "adapter";
  for (const std::filesystem::path& same : {output("base") / "model", output("wider")}) {
    EXPECT_EQ(digest_of_base(same), digest_of_base(checkpoint("base", 2))) << same;
    RunConfig next = lora_config("next-" + same.filename().string());
    next.checkpoint.initial_load_path = same.string();
    next.lora.initial_load_path = adapter.string();
    EXPECT_NO_THROW((void)run(next, 1)) << same;
    EXPECT_NO_THROW(convert_model(same, output("merged-" + same.filename().string()), {.merged = adapter})) << same;
  }
  EXPECT_NE(digest_of_base(output("base-1") / "model"), digest_of_base(output("base-2") / "model"));
  EXPECT_THAT([&] { (void)digest_of_base(checkpoint("first", 6)); },
              ThrowsMessage<Error>(HasSubstr("has adapters, which are no base")));
}

// The adapters of a layout start another run, which loses nothing but the moments; merged, they are a model.
TEST_F(LoraResume, AFolderOfAdaptersStartsAnotherRun) {
  const RunConfig config = in_a_layout(lora_config("first"));
  (void)run(config);
  const std::filesystem::path fields = output("first") / "adapter" / "adapter_config.json";
  std::string with_revision = read_text(fields);
  write_text(fields, with_revision.insert(1, R"("revision": "v2",)"));
  RunConfig next = lora_config("next");
  next.lora.initial_load_path = (output("first") / "adapter").string();
  next.optimizer.lr = 0;
  (void)run(next);
  const auto adapters = [](const std::filesystem::path& folder) {
    return read_text(folder / "adapter_model.safetensors");
  };
  EXPECT_EQ(adapters(output("next") / "adapter"), adapters(output("first") / "adapter"));
  convert_model(checkpoint("next", 6), output("of-checkpoint"), {});
  const std::string written = read_text(output("next") / "adapter" / "adapter_config.json");
  EXPECT_THAT(written, HasSubstr(R"("revision": "v2")"));
  EXPECT_EQ(read_text(output("of-checkpoint") / "adapter_config.json"), written);
  convert_model(checkpoint("first", 6), output("converted"), {});
  EXPECT_EQ(adapters(output("converted")), adapters(output("first") / "adapter"));

  RunConfig other = next;
  other.output.dir = output("other").string();
  other.checkpoint.initial_load_path = (output("base-2") / "model").string();
  EXPECT_THAT([&] { (void)run(other); }, ThrowsMessage<Error>(HasSubstr("has adapters of another base than")));
  other = next;
  other.output.dir = output("other").string();
  other.lora.rank = 4;
  EXPECT_THAT([&] { (void)run(other); }, ThrowsMessage<Error>(HasSubstr("has lora.rank = 2, not 4 (use 2)")));
  EXPECT_THAT(
      [&] { convert_model(output("base-2") / "model", output("merged"), {.merged = output("first") / "adapter"}); },
      ThrowsMessage<Error>(HasSubstr("has adapters of another base than")));
  EXPECT_FALSE(has_target(output("merged")));

  // A model whose first loss is that of the run which goes on with the adapters.
  convert_model(output("base-1") / "model", output("merged"), {.merged = output("first") / "adapter"});
  RunConfig of_merged = config;
  of_merged.output.dir = output("of-merged").string();
  of_merged.lora = {};
  of_merged.checkpoint.initial_load_path = output("merged").string();
  const Steps steps = run(of_merged, 3);
  next.output.dir = output("again").string();
  EXPECT_NEAR(steps.losses.at(1), run(next, 3).losses.at(1), 1e-12);
}

// Modules that are trained whole: in checkpoints with their moments, in folders, and in place of the base's when
// merged.
class SavedModulesResume : public LoraResume {
 protected:
  [[nodiscard]] RunConfig saving_config(const std::string& folder) const {
    RunConfig config = lora_config(folder);
    config.lora.modules_to_save = {"embed_tokens", "norm"};
    return config;
  }
};

TEST_F(SavedModulesResume, IsTheRunThatWasNotInterrupted) {
  const Steps expected = run(saving_config("plain"));
  const StateValues state = read_state(checkpoint("plain", 6));
  EXPECT_EQ(state.size(), 3 * saved_parameters(saving_config("").model, saving_config("").lora).size());
  EXPECT_TRUE(state.contains("exp_avg/model.embed_tokens.weight"));
  expect_resumed([&](const std::string& folder) { return saving_config(folder); }, expected, state);
  RunConfig other = saving_config("plain");
  other.lora.modules_to_save = {"norm"};
  EXPECT_THAT([&] { (void)run(other); }, ThrowsMessage<Error>(HasSubstr("lora.modules_to_save: was")));
}

TEST_F(SavedModulesResume, AFolderStartsAnotherRunAndIsMerged) {
  const RunConfig config = in_a_layout(saving_config("first"));
  (void)run(config);
  const std::filesystem::path adapter = output("first") / "adapter";
  RunConfig next = saving_config("next");
  next.lora.initial_load_path = adapter.string();
  next.optimizer.lr = 0;
  (void)run(next);
  const auto adapters = [](const std::filesystem::path& folder) {
    return read_text(folder / "adapter_model.safetensors");
  };
  EXPECT_EQ(adapters(output("next") / "adapter"), adapters(adapter));
  convert_model(checkpoint("first", 6), output("converted"), {});
  EXPECT_EQ(adapters(output("converted")), adapters(adapter));
  RunConfig other = next;
  other.output.dir = output("other").string();
  other.lora.modules_to_save = {"norm"};
  EXPECT_THAT([&] { (void)run(other); }, ThrowsMessage<Error>(HasSubstr("has lora.modules_to_save = embed_tokens,norm, "
                                                                        "not norm")));

  const std::filesystem::path base = output("base-1") / "model";
  convert_model(base, output("merged"), {.merged = adapter});
  const AdapterReader reader(adapter, config.model);
  const HuggingFaceReader merged(output("merged")), of_base(base);
  const auto values_of = [](const auto& of, const NamedShape& parameter) {
    std::vector<double> values(static_cast<std::size_t>(parameter.sizes.num_elements()));
    of.read(parameter.name, TensorSlice(parameter.sizes), DType::float64, values.data());
    return values;
  };
  for (const NamedShape& parameter : whole_parameters(config.model, config.lora)) {
    EXPECT_EQ(values_of(merged, parameter), values_of(reader, parameter)) << parameter.name;
    EXPECT_NE(values_of(merged, parameter), values_of(of_base, parameter)) << parameter.name;
  }
  RunConfig of_merged = config;
  of_merged.output.dir = output("of-merged").string();
  of_merged.lora = {};
  of_merged.checkpoint.initial_load_path = output("merged").string();
  const Steps steps = run(of_merged, 3);
  next.output.dir = output("again").string();
  EXPECT_NEAR(steps.losses.at(1), run(next, 3).losses.at(1), 1e-12);
}

}  // namespace
}  // namespace echelon::testing
