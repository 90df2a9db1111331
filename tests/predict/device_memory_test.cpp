// What the driver, libraries and NCCL leave of a device's memory.
#include "predict/machine/device_memory.h"

#include "base/units.h"
#include "blueprint/blueprint.h"
#include "predict/published/software_memory.h"
#include "predict/simulation/simulate.h"
#include "spec/config/config_reader.h"

#include <gtest/gtest.h>

#include <array>

namespace echelon {
namespace {

int num_of(const AxisDegrees& degrees, const PartialGroups& parts = {}) {
  return communicators_of(MeshShape(degrees), parts).total();
}

// Counted on paper: groups of the same ranks share a communicator.
TEST(Communicators, AreThoseOfDifferentRanks) {
  EXPECT_EQ(num_of({}), 0);
  EXPECT_EQ(num_of({{Axis::dp_shard, 8}}), 1);                           // step, data and shards are all ranks
  EXPECT_EQ(num_of({{Axis::dp_shard, 8}, {Axis::dp_replicate, 2}}), 3);  // all, shards, replicas
  EXPECT_EQ(num_of({{Axis::tp, 8}}), 1);
  EXPECT_EQ(num_of({{Axis::tp, 8}, {Axis::dp_shard, 4}}), 3);        // all, tp, data
  EXPECT_EQ(num_of({{Axis::pp, 2}}, {.has_tied_weight = true}), 3);  // all, there and back
  EXPECT_EQ(num_of({{Axis::pp, 4}}), 5);                             // all, two neighbours there and back
  EXPECT_EQ(num_of({{Axis::pp, 4}}, {.has_tied_weight = true}), 6);  // and the ends
  EXPECT_EQ(num_of({{Axis::tp, 8}}, {.kv_replicas = 2}), 2);
  EXPECT_EQ(num_of({{Axis::tp, 8}}, {.kv_replicas = 8}), 1);
  EXPECT_EQ(num_of({{Axis::cp, 8}}, {.head_ranks = 8}), 1);
  EXPECT_EQ(num_of({{Axis::cp, 8}}, {.ring_ranks = 8}), 2);  // all, around the ring
  // all, heads, those across them, around their ring
  EXPECT_EQ(num_of({{Axis::cp, 8}}, {.head_ranks = 4, .ring_ranks = 2}), 4);
}

// Keys that are gathered go to no neighbour.
TEST(Communicators, FollowTheMethodOfContextParallelism) {
  RunConfig config;
  config.model.num_attention_heads = config.model.num_key_value_heads = 8;
  config.parallelism.context_parallel_degree = 8;
  for (const auto& [method, expected] :
       {std::pair(ContextMethod::ring, 2), {ContextMethod::all_gather, 1}, {ContextMethod::ulysses, 1}}) {
    config.parallelism.context_parallel_method = method;
    EXPECT_EQ(communicators_of(config.mesh_shape(), partial_groups(config)).total(), expected) << name_of(method);
  }
}

// Gradients and stages have fewer blocks, unless the same ranks also wait for each other in layers.
TEST(Communicators, HaveBlocksByPurpose) {
  const auto blocks = [](const AxisDegrees& degrees, const PartialGroups& parts = {}) {
    const Communicators all = communicators_of(MeshShape(degrees), parts);
    return std::array{all.with_any_blocks, all.with_data_blocks, all.with_transfer_blocks};
  };
  EXPECT_EQ(blocks({{Axis::dp_shard, 8}}), (std::array{0, 1, 0}));
  EXPECT_EQ(blocks({{Axis::tp, 8}}), (std::array{1, 0, 0}));
  EXPECT_EQ(blocks({{Axis::cp, 8}}), (std::array{1, 0, 0}));                       // shards too
  EXPECT_EQ(blocks({{Axis::tp, 8}, {Axis::dp_shard, 4}}), (std::array{1, 2, 0}));  // tp, data, all
  EXPECT_EQ(blocks({{Axis::pp, 4}}), (std::array{0, 1, 4}));                       // neighbours
  EXPECT_EQ(blocks({{Axis::pp, 4}}, {.has_tied_weight = true}), (std::array{0, 2, 4}));
  EXPECT_EQ(blocks({{Axis::pp, 2}}, {.has_tied_weight = true}), (std::array{0, 1, 2}));
}

// A block has 9.2 MiB.
TEST(ArenaLimit, IsWhatIsLeft) {
  constexpr std::int64_t mib = std::int64_t{1} << 20;
  DeviceSpec device;
  device.memory_bytes = 1000 * mib;
  device.reserved_bytes = 200 * mib;
  device.communicator_bytes = 184 * mib;
  EXPECT_EQ(arena_limit_bytes(device, {}), 800 * mib);
  EXPECT_EQ(arena_limit_bytes(device, {.with_any_blocks = 3}), 248 * mib);
  EXPECT_NEAR(static_cast<double>(arena_limit_bytes(device, {.with_data_blocks = 2, .with_transfer_blocks = 1})) / mib,
              800 - (2 * 16 + 4) * 9.2, 0.01);
  EXPECT_EQ(arena_limit_bytes(device, {.with_any_blocks = 99}), 0);
  device.communicator_bytes = 7 * mib;  // of few channels
  EXPECT_EQ(arena_limit_bytes(device, {.with_data_blocks = 1, .with_transfer_blocks = 1}), 786 * mib);
}

RunConfig two_shards() {
  return read_run_config(
      {.path = {},
       .arguments = {"--model.preset=llama-10m", "--training.dtype=bfloat16", "--training.global_batch_size=2",
                     "--training.micro_batch_size=1", "--parallelism.data_parallel_shard_degree=2"},
       .read_model = {}});
}

/// A machine on which `config` has exactly as much memory as its arena needs, after the reserve.
MachineSpec just_enough(const Blueprint& blueprint, std::int64_t more) {
  MachineSpec machine = read_machine("h100");
  DeviceSpec& device = machine.nodes.front().device;
  const std::int64_t of_nccl = 16 * ((std::int64_t{92} << 20) / 10);  // of 16 blocks, for gradients
  device.memory_bytes = blueprint.pipeline_ranks().front().arena_bytes() + device.reserved_bytes + of_nccl + more;
  return machine;
}

TEST(Reserve, IsNoRoomForTheArena) {
  const Blueprint blueprint(two_shards());
  const Simulation fits = simulate(blueprint, just_enough(blueprint, 0));
  EXPECT_TRUE(fits.fits());
  EXPECT_EQ(fits.memory.front().device_bytes, fits.memory.front().arena_bytes);
  EXPECT_NEAR(static_cast<double>(fits.memory.front().reserved_bytes), 0.6 * gib + 16 * 9.2 * (1 << 20), 0.001 * gib);
  EXPECT_FALSE(simulate(blueprint, just_enough(blueprint, -1)).fits());
}

// PyTorch's profile counts 2.5 GiB of its own, which contain the reserve.
TEST(Reserve, IsNotCountedTwice) {
  const Blueprint blueprint(two_shards());
  const MachineSpec machine = just_enough(blueprint, 0);
  const SoftwareProfile torch = software_profile("fsdp"), megatron = software_profile("megatron-core");
  const auto memory_of = [&](const SoftwareProfile& profile) {
    return simulate_software(blueprint, machine, {.profile = profile}).memory.front();
  };
  const std::int64_t whole = machine.nodes.front().device.memory_bytes;
  EXPECT_EQ(memory_of(torch).device_bytes, whole);
  EXPECT_EQ(memory_of(torch).reserved_bytes, 0);
  EXPECT_LT(memory_of(megatron).device_bytes, whole);
}

}  // namespace
}  // namespace echelon
