// A run that was interrupted is the run that was not: the same losses, norms and states, bit for bit, in every format.
#include "resume/small_run.h"

#include "checkpoint/safetensors/convert_values.h"
#include "checkpoint/state/saved_config.h"
#include "comm/thread/thread_world.h"
#include "engine/rank_state.h"
#include "files/file.h"
#include "ops/cpu/cpu_ops.h"
#include "train/save/state_saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace echelon::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Format {
  const char* name;
  void (*set)(RunConfig& config);
};

void PrintTo(const Format& format, std::ostream* out) { *out << format.name; }

const Format formats[] = {
    {"float64", [](RunConfig&) {}},
    {"float32", [](RunConfig& config) { config.training.dtype = DType::float32; }},
    {"bfloat16", [](RunConfig& config) { config.training.dtype = DType::bfloat16; }},
    {"remainders",
     [](RunConfig& config) {
       config.training.dtype = DType::bfloat16;
       config.optimizer.store_param_remainders = true;
     }},
    {"moments_in_16_bits",
     [](RunConfig& config) {
       config.training.dtype = DType::bfloat16;
       config.optimizer.moments_dtype = DType::bfloat16;
     }},
    // Overflows in the first steps, and in others since the scale grows every second step.
    {"float16",
     [](RunConfig& config) {
       config.training.dtype = DType::float16;
       config.grad_scaler.init_scale = 1 << 22;
       config.grad_scaler.growth_interval = 2;
     }},
    {"float8",
     [](RunConfig& config) {
       config.training.dtype = DType::bfloat16;
       config.training.linear_dtype = LinearDType::float8;
       config.model.hidden_size = 64;
       config.model.head_dim = 16;  // blocks of 16 values
     }},
    // With context parallelism: what is packed is resumed in matrix_test.cpp.
    {"ring",
     [](RunConfig& config) {
       config.training.dtype = DType::bfloat16;
       config.parallelism.tensor_parallel_degree = 1;
       config.parallelism.context_parallel_degree = 3;
     }},
    {"ulysses",
     [](RunConfig& config) {
       config.parallelism.tensor_parallel_degree = 1;
       config.parallelism.context_parallel_degree = 2;
       config.parallelism.context_parallel_method = ContextMethod::ulysses;
     }},
};

class Resumed : public SmallRun, public ::testing::WithParamInterface<Format> {
 protected:
  RunConfig config_of(const Format& format, const std::string& folder) const {
    RunConfig config = this->config(folder);
    config.training.steps = 10;
    config.checkpoint.interval = 1;
    config.parallelism.data_parallel_shard_degree = config.parallelism.tensor_parallel_degree = 2;
    config.parallelism.zero_level = 3;
    format.set(config);
    return config;
  }
};

// 63 windows are an epoch, and it ends in the sixth step.
//
// Claim (training): A run that is resumed after any step, or five times in a chain, equals the run
//   that is not, in seven formats from float64 to float8, and with context parallelism.
// Bound: identical bits of losses, norms, weights and moments.
// Tests: Formats/Resumed
TEST_P(Resumed, AfterEachStepIsTheRunThatWasNotInterrupted) {
  const RunConfig plain = config_of(GetParam(), "plain");
  ReportLog log;
  (void)run(plain, log);
  const Steps expected = steps_of(log);
  const StateValues state = read_state(checkpoint("plain", 10));
  if (plain.training.dtype == DType::float16) {
    const auto num_skipped = std::ranges::count_if(log.steps, &StepReport::is_skipped);
    EXPECT_TRUE(num_skipped > 1 && num_skipped < 9) << num_skipped;
  }
  for (std::int64_t step = 1; step < 10; ++step) {
    SCOPED_TRACE(step);
    const std::string folder = "from-" + std::to_string(step);
    RunConfig config = config_of(GetParam(), folder);
    config.checkpoint.load = checkpoint("plain", step).string();
    config.checkpoint.interval = 100;
    EXPECT_EQ(run(config), after(step, expected));
    EXPECT_EQ(read_state(checkpoint(folder, 10)), state);
    const RunScalars is = StateReader(checkpoint(folder, 10)).manifest().scalars,
                     was = StateReader(checkpoint("plain", 10)).manifest().scalars;
    EXPECT_EQ(is, was);
    EXPECT_EQ(is.sequences, 120) << "each sequence was read once";
  }
}

TEST_P(Resumed, FiveTimesInAChainIsTheSameRun) {
  const Steps expected = run(config_of(GetParam(), "plain"));
  RunConfig config = config_of(GetParam(), "chain");
  config.checkpoint.interval = 100;
  Steps chain;
  for (const std::int64_t last : {2, 4, 6, 8, 0}) {
    const Steps part = run(config, last);
    chain.losses.insert(part.losses.begin(), part.losses.end());
    chain.norms.insert(part.norms.begin(), part.norms.end());
  }
  EXPECT_EQ(chain, expected);
  EXPECT_EQ(read_state(checkpoint("chain", 10)), read_state(checkpoint("plain", 10)));
  EXPECT_EQ(StateReader(checkpoint("chain", 10)).manifest().lineage.size(), 5U);
}
INSTANTIATE_TEST_SUITE_P(Formats, Resumed, ::testing::ValuesIn(formats),
                         [](const auto& format) { return format.param.name; });

class ResumedDifferently : public SmallRun {
 protected:
  /// Loads a checkpoint into a run of the config, on one rank, and saves it again in the config's folder.
  void convert(const std::filesystem::path& from, const RunConfig& config) const {
    const Blueprint blueprint(config);
    make_folder(checkpoint_folder(config));
    const StateReader reader(from);
    run_thread_ranks(blueprint.mesh(), {}, [&](Mesh& mesh) {
      const auto ops = make_cpu_ops({});
      RankRun run(blueprint, mesh, *ops);
      load_state(run.model().part(), reader, {}, *ops, mesh, mesh);
      StateSaver saver({blueprint, run, *ops, mesh}, 1, {});
      const auto failure = saver.save(reader.manifest().scalars);
      EXPECT_FALSE(failure.has_value()) << failure->sentence;
    });
  }
  RunConfig config_of(DType dtype, DType moments, bool remainders, const std::string& folder) const {
    RunConfig config = this->config(folder);
    config.training.dtype = dtype;
    config.optimizer.moments_dtype = moments;
    config.optimizer.store_param_remainders = remainders;
    return config;
  }
};

double rounded(double value, DType dtype) {
  double back = 0;
  std::byte bytes[8];
  convert_values(DType::float64, reinterpret_cast<const std::byte*>(&value), dtype, bytes, 1);
  convert_values(dtype, bytes, DType::float64, reinterpret_cast<std::byte*>(&back), 1);
  return back;
}

// Values that fit keep their bits; others are rounded once.
TEST_F(ResumedDifferently, FormatsAreConvertedOnce) {
  struct Conversion {
    DType dtype, moments;
    bool remainders;
    DType is_dtype, is_moments;
    bool is_remainders;
  };
  constexpr DType f64 = DType::float64, f32 = DType::float32, bf16 = DType::bfloat16;
  int number = 0;
  for (const auto& [dtype, moments, remainders, is_dtype, is_moments, is_remainders] :
       {Conversion{f32, f32, false, bf16, f32, false},   // parameters are rounded, weights are not
        Conversion{bf16, f32, false, f32, f32, false},   // and back
        Conversion{bf16, f32, false, bf16, f32, true},   // masters to remainders
        Conversion{bf16, f32, true, bf16, f32, false},   // and back
        Conversion{bf16, bf16, true, bf16, f32, false},  // wider moments
        Conversion{bf16, f32, false, bf16, bf16, true},  // narrower ones
        Conversion{f64, f64, false, f32, f32, false}}) {
    SCOPED_TRACE(++number);
    const std::string from = "from" + std::to_string(number), to = "to" + std::to_string(number);
    (void)run(config_of(dtype, moments, remainders, from), 3);
    const RunConfig config = config_of(is_dtype, is_moments, is_remainders, to);
    convert(checkpoint(from, 3), config);
    const StateValues was = read_state(checkpoint(from, 3)), is = read_state(checkpoint(to, 3));
    ASSERT_EQ(was.size(), is.size());
    for (const auto& [name, values] : was) {
      const DType kept = name.starts_with("weight/") ? accumulate_dtype(is_dtype) : is_moments;
      for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(is.at(name)[i], rounded(values[i], kept)) << name << " " << i;
    }
  }
}

TEST_F(ResumedDifferently, ARunSaysWhatItRounds) {
  (void)run(config_of(DType::float64, DType::float64, false, "run"), 3);
  ReportLog log;
  RunConfig config = config_of(DType::bfloat16, DType::bfloat16, false, "run");
  const std::string refusal = [&] {
    try {
      (void)run(config, log);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  }();
  EXPECT_THAT(refusal, HasSubstr("training.dtype: was \"float64\", is \"bfloat16\""));
  EXPECT_THAT(refusal, HasSubstr("--checkpoint.load=latest"));
  config.checkpoint.load = "latest";
  (void)run(config, log);
  EXPECT_THAT(log.lines, ::testing::Contains("weight is rounded from float64 to float32"));
  EXPECT_THAT(log.lines, ::testing::Contains("exp_avg_sq is rounded from float64 to bfloat16"));
  EXPECT_THAT(StateReader(checkpoint("run", 8)).manifest().lineage.back().changes,
              ::testing::Contains("training.dtype: was \"float64\", is \"bfloat16\""));
}

// With a learning rate that changes nothing, a loss depends on the sequences of its step alone.
TEST_F(ResumedDifferently, AnotherBatchSizeContinuesTheStream) {
  write_data("whole", 63 * 16 + 1);  // the last window of others is shorter, and its tokens weigh more
  RunConfig config = this->config("plain");
  config.data.path = (scratch_ / "whole").string();
  config.optimizer.lr = 1e-30;
  const Steps plain = run(config);
  for (const int shards : {1, 3}) {
    RunConfig halved = config;
    halved.output.dir = output("halved" + std::to_string(shards)).string();
    halved.checkpoint.load = checkpoint("plain", 3).string();
    halved.training.global_batch_size = 6;
    halved.training.steps = 13;
    halved.parallelism.data_parallel_shard_degree = shards;
    const Steps steps = run(halved);
    ASSERT_EQ(steps.losses.size(), 10U);
    for (std::int64_t step = 4; step <= 8; ++step) {
      const std::int64_t first = 4 + 2 * (step - 4);
      const double mean = (steps.losses.at(first) + steps.losses.at(first + 1)) / 2, loss = plain.losses.at(step);
      EXPECT_NEAR(mean, loss, 1e-11 * loss) << step;
    }
    EXPECT_EQ(StateReader(checkpoint("halved" + std::to_string(shards), 13)).manifest().scalars.sequences, 96);
  }
}

TEST_F(ResumedDifferently, WhatIsExcludedStartsAfresh) {
  const RunConfig plain = config("plain");
  const Steps steps = run(plain);
  RunConfig config = plain;
  config.checkpoint.load = checkpoint("plain", 6).string();

  config.output.dir = output("data").string();
  config.checkpoint.exclude_from_loading.dataloader = true;
  (void)run(config);
  EXPECT_EQ(StateReader(checkpoint("data", 8)).manifest().scalars.sequences, 24);

  config.output.dir = output("optimizer").string();
  config.checkpoint.exclude_from_loading = {.optimizer = true};
  (void)run(config);
  const Manifest without = StateReader(checkpoint("optimizer", 8)).manifest();
  EXPECT_EQ(without.scalars.skipped_steps, 6) << "bias correction starts again";

  config.output.dir = output("schedule").string();
  config.checkpoint.exclude_from_loading = {.lr_scheduler = true};
  ReportLog log;
  (void)run(config, log);
  EXPECT_EQ(log.steps[0].lr, plain.optimizer.lr / 2) << "the first of two steps of warm-up";
}

TEST_F(ResumedDifferently, AFinishedRunSaysSo) {
  (void)run(config("run"));
  ReportLog log;
  const TrainResult again = run(config("run"), log);
  EXPECT_TRUE(again.was_finished);
  EXPECT_EQ(again.model_folder, output("run") / "model");
  EXPECT_THAT(log.steps, IsEmpty());
  EXPECT_THAT(log.lines, ElementsAre(HasSubstr("has made its 8 steps")));
  // Cut off between the last checkpoint and the model.
  std::filesystem::remove_all(output("run") / "model");
  EXPECT_TRUE(run(config("run"), log).was_finished);
  EXPECT_TRUE(std::filesystem::exists(output("run") / "model" / "config.json"));
}

}  // namespace
}  // namespace echelon::testing
