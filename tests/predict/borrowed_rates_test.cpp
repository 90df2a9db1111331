// Plans and simulations have the rates that software was measured to reach, and nothing else of that software.
#include "predict/machine/device_time.h"
#include "predict/published/best_published.h"
#include "predict/published/promise.h"
#include "predict/simulation/simulate.h"
#include "predict/software/interval.h"
#include "spec/config/config_reader.h"
#include "spec/machine/shipped_machines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace echelon {
namespace {

using testing::HasSubstr;

const DeviceSpec& device_of(const MachineSpec& machine) { return machine.nodes.front().device; }
MachineSpec borrowed(const std::string& machine) {
  return calibrated(software_profile("echelon"), read_machine(machine));
}

RunConfig config_of(const char* model, const char* dtype = "bfloat16") {
  return read_run_config(
      {.path = {},
       .arguments = {fmt::format("--model.preset={}", model), fmt::format("--training.dtype={}", dtype),
                     "--training.seq_len=1024", "--training.global_batch_size=64",
                     "--parallelism.tensor_parallel_degree=2", "--parallelism.pipeline_parallel_degree=2",
                     "--parallelism.data_parallel_shard_degree=4"},
       .read_model = {}});
}

// Own runs on a GPU do not exist: the shares are those that all software has in common.
TEST(BorrowedRates, AreSharesOfTheMachinesOwn) {
  const Calibration common;
  for (const ShippedMachine& shipped : shipped_machines()) {
    const std::string name(shipped.name);
    const MachineSpec own = read_machine(name), with = borrowed(name);
    EXPECT_EQ(rates_text(software_profile("echelon"), own),
              "the rates that Megatron-LM, DeepSpeed, llm-foundry and PyTorch FSDP have in common on A100 and H100, "
              "since Echelon was not measured on a GPU");
    const FormatRates &of_file = rates_of(device_of(own), DType::float16),
                      &of_echelon = rates_of(device_of(with), DType::float16);
    EXPECT_DOUBLE_EQ(of_echelon.matmul.efficiency, common.matmul_share * of_file.matmul.efficiency) << name;
    EXPECT_DOUBLE_EQ(of_echelon.attention_efficiency, common.attention_share * of_file.attention_efficiency) << name;
    EXPECT_DOUBLE_EQ(with.network.efficiency, common.network_share * own.network.efficiency) << name;
    EXPECT_EQ(device_of(with).operation_seconds, device_of(own).operation_seconds) << name;
    EXPECT_EQ(device_of(with).launch_seconds, device_of(own).launch_seconds) << name;
  }
}

TEST(BorrowedRates, NeverExceedTheMachineFile) {
  for (const ShippedMachine& shipped : shipped_machines()) {
    const std::string name(shipped.name);
    const MachineSpec own = read_machine(name), with = borrowed(name);
    EXPECT_LE(device_of(with).memory_efficiency, device_of(own).memory_efficiency) << name;
    EXPECT_LE(with.nodes.front().link.efficiency, own.nodes.front().link.efficiency) << name;
    EXPECT_LE(with.network.efficiency, own.network.efficiency) << name;
    EXPECT_GE(with.network.latency_seconds, own.network.latency_seconds) << name;
    for (const auto& [format, rates] : device_of(own).formats)
      EXPECT_LE(device_of(with).formats.at(format).matmul.efficiency, rates.matmul.efficiency) << name << " " << format;
  }
}

TEST(BorrowedRates, ChangeTimesAlone) {
  const Blueprint blueprint(config_of("gpt2-124m"));
  const Simulation usual = simulate(blueprint, borrowed("h100")), ideal = simulate(blueprint, read_machine("h100"));
  EXPECT_GT(usual.step_seconds, 1.05 * ideal.step_seconds);
  EXPECT_EQ(usual.peak_memory_bytes(), ideal.peak_memory_bytes());
  EXPECT_EQ(usual.hardware_flops, ideal.hardware_flops);
  EXPECT_EQ(usual.sent_bytes, ideal.sent_bytes);
  EXPECT_EQ(usual.timeline.events.size(), ideal.timeline.events.size());
}

TEST(BorrowedRates, LeaveWhatWasMeasuredHereAndTheIdealMachine) {
  const MachineSpec file = read_machine("h100");
  EXPECT_EQ(to_toml(calibrated(software_profile("ideal"), file)), to_toml(file));
  MachineSpec measured = file;
  // What `echelon bench` adds: products with their rates.
  measured.nodes.front().device.formats.at("bfloat16").points = {{.m = 4096, .n = 4096, .k = 4096, .flops = 6e14}};
  EXPECT_EQ(to_toml(calibrated(software_profile("echelon"), measured)), to_toml(measured));
  EXPECT_EQ(rates_text(software_profile("echelon"), measured), "the rates that were measured on it");
  MachineSpec tuned = file;
  tuned.has_measured_rates = true;  // as `echelon tune --machine-output` says
  EXPECT_EQ(calibrated(software_profile("echelon"), tuned), tuned);
}

TEST(BorrowedRates, OfOtherSoftwareAreForEchelonsOwnOperations) {
  const SoftwareProfile rates = rates_of_profile(software_profile("megatron-core"));
  EXPECT_TRUE(rates.is_echelon);
  EXPECT_EQ(rates_text(rates, read_machine("a100-80")), "the rates that megatron-core reaches");
  const Calibration fit = calibration_of(software_profile("megatron-core"));
  const MachineSpec own = read_machine("a100-80"), with = calibrated(rates, own);
  EXPECT_DOUBLE_EQ(rates_of(device_of(with), DType::bfloat16).matmul.efficiency,
                   fit.matmul_share * rates_of(device_of(own), DType::bfloat16).matmul.efficiency);
  EXPECT_NE(fit.matmul_share, Calibration().matmul_share);
}

TEST(BestPublished, IsOfTheGpuAndTheSize) {
  const auto at = [](const char* machine, double parameters) {
    const auto best = best_published_at(device_of(read_machine(machine)), parameters);
    return best ? best->mfu : 0;
  };
  EXPECT_EQ(at("a100-80", 175e9), 0.653);   // MegaScale, table 2: 256 GPUs
  EXPECT_EQ(at("a100-80", 1000e9), 0.563);  // Korthikanti et al., table 5
  EXPECT_LT(at("h100-96", 8e9), at("h100", 8e9));
  EXPECT_EQ(at("v100", 175e9), 0);
  EXPECT_EQ(at("b200", 8e9), 0);
}

TEST(Promise, HasTheTimeItsIntervalAndTheBestPublished) {
  const RunConfig config = config_of("gpt3-175b");
  const SoftwareProfile profile = software_profile("echelon");
  const MachineSpec machine = borrowed("a100-80");
  Simulation result;
  result.model_flops = 0.41 * 2.31;
  result.peak_flops = 1;
  result.step_seconds = 2.31;
  const TimeInterval interval = interval_of(profile, machine).value();
  EXPECT_LT(interval.low, 1);
  EXPECT_GT(interval.high, 1);
  EXPECT_EQ(promise_text(result, config, machine, profile),
            fmt::format("2.31 s ({:.1f} to {:.1f}; 41 % MFU; best published on A100 at this size: 65 %)",
                        2.31 * interval.low, 2.31 * interval.high));
  EXPECT_EQ(warning_of(result, config, machine), "");
  result.model_flops = 0.9 * 2.31;
  EXPECT_THAT(warning_of(result, config, machine),
              HasSubstr("90 % MFU is above the best published on A100 at this size: 65 %"));
  EXPECT_THAT(promise_text(result, config, machine, software_profile("ideal")), HasSubstr("which no software reaches"));
}

Simulation with_mfu(double mfu) {
  Simulation result;
  result.model_flops = mfu;
  result.peak_flops = result.step_seconds = 1;
  return result;
}

// MT-NLG's 530 B: 56 % by Korthikanti et al., table 5; MegaScale's 65 % is of 175 B.
TEST(Promise, WarnsAboveTheBestPublishedOfTheSizeThatItPrints) {
  RunConfig config = config_of("gpt3-175b");
  config.model.num_hidden_layers *= 3;
  ASSERT_NEAR(static_cast<double>(config.model.num_parameters()) / 1e9, 530, 15);
  EXPECT_THAT(warning_of(with_mfu(0.62), config, borrowed("a100-80")),
              HasSubstr("62 % MFU is above the best published on A100 at this size: 56 %"));
  EXPECT_EQ(warning_of(with_mfu(0.55), config, borrowed("a100-80")), "");
  // Of this size none was published on V100, so any counts.
  EXPECT_THAT(warning_of(with_mfu(0.4), config_of("gpt3-175b", "float16"), borrowed("v100")),
              HasSubstr("40 % MFU is above the best published on V100: 31 %"));
}

// 78.27 of 78.36 GiB.
TEST(Promise, SaysHowFullADeviceIsThatIsAlmostFull) {
  Simulation result = with_mfu(0.4);
  constexpr double gib = 1 << 30;
  const auto with_room = [&](double taken) {
    result.memory = {
        {.arena_bytes = static_cast<std::int64_t>(50 * gib), .device_bytes = static_cast<std::int64_t>(78.36 * gib)},
        {.arena_bytes = static_cast<std::int64_t>(taken * gib),
         .device_bytes = static_cast<std::int64_t>(78.36 * gib)}};
    return fullness_of(result);
  };
  EXPECT_EQ(with_room(78.27), "the device with the highest memory use has 78.27 of 78.36 GiB (99.9 %)");
  EXPECT_EQ(
      promise_json(result, config_of("gpt2-124m"), borrowed("h100"), software_profile("echelon"))["memory_warning"],
      with_room(78.27));
  EXPECT_EQ(with_room(76), "");  // 96.99 %
  EXPECT_EQ(with_room(79), "");  // it does not fit
}

TEST(Promise, SaysWhatNoRunOfTheIntervalHad) {
  const SoftwareProfile profile = software_profile("echelon");
  const auto text = [&](const RunConfig& config, const char* machine) {
    return promise_text(with_mfu(0.4), config, borrowed(machine), profile);
  };
  RunConfig config = config_of("gpt2-124m");
  for (const char* machine : {"a100-40", "a100-80", "h100", "h100-96"})
    EXPECT_THAT(text(config, machine), testing::Not(HasSubstr("without runs"))) << machine;
  EXPECT_THAT(text(config, "b200"), HasSubstr(", estimated without runs on B200; 40 % MFU"));
  config.parallelism.context_parallel_degree = 2;
  EXPECT_THAT(text(config, "h100"), HasSubstr(", estimated without runs of context parallelism;"));
  config.training.linear_dtype = LinearDType::float8;
  EXPECT_THAT(text(config, "h200"),
              HasSubstr(", estimated without runs of context parallelism, in float8 or on H200;"));
  EXPECT_EQ(promise_json(with_mfu(0.4), config, borrowed("h100"), profile)["interval_without_runs"],
            (nlohmann::ordered_json::array({"of context parallelism", "in float8"})));
  EXPECT_THAT(text(config_of("gpt2-124m", "float16"), "v100"), HasSubstr(", estimated without runs on V100;"));
}

}  // namespace
}  // namespace echelon
