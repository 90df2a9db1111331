// Seconds of checkpoints, from what can be worked out by hand: bytes over a disk's rate, copies over memory's.
#include "predict/saving/predicted_save.h"

#include "blueprint/save_plan.h"
#include "predict/host/host_step.h"
#include "predict/simulation/simulate.h"
#include "spec/config/config_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

RunConfig config(int num_shards, AsyncMode mode = AsyncMode::disabled) {
  RunConfig config;
  config.model = family_defaults(Family::llama);
  config.model.hidden_size = 64;
  config.model.num_hidden_layers = 2;
  config.model.num_attention_heads = config.model.num_key_value_heads = 4;
  config.model.head_dim = 16;
  config.model.intermediate_size = 128;
  config.model.vocab_size = 256;
  config.model.max_position_embeddings = 64;
  config.training.seq_len = 16;
  config.training.global_batch_size = 8;
  config.parallelism.data_parallel_shard_degree = num_shards;
  config.checkpoint.async_mode = mode;
  return config;
}

constexpr double write_rate = 2e9, read_rate = 3e9, sync_seconds = 5e-3, memory_rate = 1e10;

/// Cores with rates alone; the disk is `disk`.
HostSpec host(std::int64_t num_cores, const DiskSpec& disk) {
  HostSpec host;
  host.num_cores = num_cores;
  host.memory_bytes = std::int64_t{8} << 30;
  const auto cores = static_cast<double>(num_cores);
  host.core = {.float32_flops = 1e11,
               .copy_bandwidth = memory_rate / cores,
               .triad_bandwidth = memory_rate / cores,
               .read_bandwidth = memory_rate / cores};
  host.device = host.core * cores;
  host.disk = disk;
  return host;
}

const DiskSpec some_disk = {.write_bandwidth = write_rate, .read_bandwidth = read_rate, .sync_seconds = sync_seconds};

PredictedSave save_on(const HostSpec& host, const RunConfig& config) {
  return predicted_save(Blueprint(config), machine_of(host));
}

TEST(PredictedSave, BytesOverTheDisksRate) {
  const RunConfig of_run = config(2);
  const SavePlan plan{Blueprint(of_run)};
  const PredictedSave save = save_on(host(2, some_disk), of_run);
  EXPECT_EQ(save.num_files, 2);
  EXPECT_EQ(save.num_bytes, plan.num_bytes());
  EXPECT_EQ(save.largest_file_bytes, plan.most_bytes());
  const auto bytes = static_cast<double>(plan.num_bytes());
  EXPECT_NEAR(save.save_seconds.value(), bytes / write_rate + 3 * sync_seconds, 1e-12);
  EXPECT_NEAR(save.load_seconds.value(), bytes / read_rate, 1e-12);
  EXPECT_FALSE(save.snapshot.has_value());
  const PredictedSave without = save_on(host(2, {}), of_run);
  EXPECT_EQ(without.save_seconds, std::nullopt);
  EXPECT_EQ(seconds_text(without), "");
  EXPECT_TRUE(to_json(without)["predicted_save_seconds"].is_null());
}

// Nodes of two devices: the one whose ranks write most is the last to have written. One without rates says nothing.
TEST(PredictedSave, NodesWriteAtTheSameTime) {
  MachineSpec machine = read_machine("v100");
  machine.nodes.front().num_devices = 2;
  machine.nodes.front().disk = some_disk;
  RunConfig of_run = config(1);
  of_run.training.device = DeviceChoice::cuda;
  of_run.parallelism.pipeline_parallel_degree = 2;
  of_run.parallelism.data_parallel_replicate_degree = 2;
  const Blueprint blueprint(of_run);
  std::int64_t of_node[2] = {};
  for (int rank = 0; rank < 4; ++rank) of_node[rank / 2] += planned_file(blueprint, rank)->num_bytes;
  EXPECT_NE(of_node[0], of_node[1]);
  EXPECT_NEAR(predicted_save(blueprint, machine).save_seconds.value(),
              static_cast<double>(std::max(of_node[0], of_node[1])) / write_rate + 3 * sync_seconds, 1e-12);
  machine.nodes.front().disk = {};
  EXPECT_EQ(predicted_save(blueprint, machine).save_seconds, std::nullopt);
}

// The copy reads and writes each byte, and no core has anything else to do meanwhile.
TEST(PredictedSave, NothingHidesTheCopyOnACpu) {
  const RunConfig of_run = config(1, AsyncMode::async);
  const PredictedSnapshot snapshot = save_on(host(1, {}), of_run).snapshot.value();
  const double copied = 2.0 * 12 * static_cast<double>(of_run.model.num_parameters());
  EXPECT_NEAR(static_cast<double>(snapshot.num_bytes), copied / 2, 0.01 * copied);
  EXPECT_NEAR(snapshot.longer_seconds, copied / memory_rate, 0.01 * copied / memory_rate);
  EXPECT_NEAR(snapshot.step_seconds - snapshot.longer_seconds, host_step(Blueprint(of_run), host(1, {})).seconds,
              1e-12);
  EXPECT_EQ(snapshot.writer_core_seconds, std::nullopt);
  // Two ranks copy half of it each, at half of the memory's rate each.
  const PredictedSnapshot of_two = save_on(host(2, {}), config(2, AsyncMode::async)).snapshot.value();
  EXPECT_NEAR(of_two.longer_seconds, copied / memory_rate, 0.02 * copied / memory_rate);
}

// Copies were measured in the caches, where no state is.
TEST(PredictedSave, TheCopyIsOfMemoryAndNotOfCaches) {
  const RunConfig of_run = config(1, AsyncMode::async);
  HostSpec cached = host(1, {});
  cached.operations["copy"]["float32"] = {{1, 1, 1, 1e6, 1e-6, 1e-6, 1e-6}};
  const double copied = 2.0 * 12 * static_cast<double>(of_run.model.num_parameters());
  EXPECT_NEAR(save_on(cached, of_run).snapshot->longer_seconds, copied / memory_rate, 0.01 * copied / memory_rate);
}

// Cores that are all busy give a tenth of one of them to the writer, which copies each byte, reads it and hands it
// over.
TEST(PredictedSave, TheWriterTakesTimeOfTheCores) {
  const RunConfig of_run = config(1, AsyncMode::async);
  DiskSpec disk = some_disk;
  const double longer = save_on(host(1, disk), of_run).snapshot->longer_seconds;
  disk.write_core_bandwidth = 4e9;
  const PredictedSave save = save_on(host(1, disk), of_run);
  const double written = static_cast<double>(save.num_bytes) * (3 / memory_rate + 1 / disk.write_core_bandwidth);
  EXPECT_NEAR(save.snapshot->writer_core_seconds.value(), written, 1e-9 * written);
  const double step = host_step(Blueprint(of_run), host(1, disk), {}, ProgramKind::training_with_snapshot).seconds,
               share = 110.0 / 1134, taken = std::min(share * step, written);
  EXPECT_NEAR(save.snapshot->longer_seconds - longer, taken, 1e-9 * step);
}

// What is written in place is waited for, but for the time of the step before its first update.
TEST(PredictedSave, UpdatesWaitForADiskThatIsSlow) {
  RunConfig of_run = config(2, AsyncMode::async);
  of_run.checkpoint.snapshot_bytes = 0;
  const double step = host_step(Blueprint(of_run), host(2, {}), {}, ProgramKind::training_with_snapshot).seconds;
  DiskSpec disk = some_disk;
  disk.write_bandwidth = 12 * static_cast<double>(of_run.model.num_parameters()) / (3 * step);
  const PredictedSnapshot slow = save_on(host(2, disk), of_run).snapshot.value();
  EXPECT_EQ(slow.num_bytes, 0);
  EXPECT_GT(slow.waiting_seconds.value(), 2 * step);
  EXPECT_LT(slow.waiting_seconds.value(), 3 * step);
  EXPECT_NEAR(slow.longer_seconds, *slow.waiting_seconds, 1e-9 * step) << "nothing is copied";
  disk.write_bandwidth *= 1000;
  EXPECT_EQ(save_on(host(2, disk), of_run).snapshot->waiting_seconds, 0);
  EXPECT_EQ(save_on(host(2, {}), of_run).snapshot->waiting_seconds, std::nullopt);
  of_run.checkpoint.snapshot_bytes = -1;
  EXPECT_EQ(save_on(host(2, {}), of_run).snapshot->waiting_seconds, 0);
}

// A GPU waits until its host has the copy.
TEST(PredictedSave, DevicesSendTheirCopyToTheHost) {
  MachineSpec machine = read_machine("v100");
  RunConfig of_run = read_run_config({.path = "",
                                      .arguments = {"--model.preset=gpt2-124m", "--training.seq_len=64",
                                                    "--training.device=cuda", "--checkpoint.async_mode=async"},
                                      .read_model = {}});
  const Blueprint blueprint(of_run);
  DeviceSpec& device = machine.nodes.front().device;
  device.host_bandwidth = 1e10;
  const double fast = predicted_save(blueprint, machine).snapshot->longer_seconds;
  device.host_bandwidth = 1e9;
  const PredictedSnapshot slow = predicted_save(blueprint, machine).snapshot.value();
  const auto bytes = static_cast<double>(slow.num_bytes);
  EXPECT_NEAR(bytes, 12.0 * static_cast<double>(of_run.model.num_parameters()), 0.01 * bytes);
  EXPECT_NEAR(slow.longer_seconds - fast, bytes * (1e-9 - 1e-10), 0.01 * bytes * 1e-9);
}

}  // namespace
}  // namespace echelon
