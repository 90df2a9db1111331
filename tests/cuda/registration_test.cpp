// Arenas that NCCL allocates and ranks register, so that collectives read and write peers' memory in place: by the
// emulated NCCL, which demands what the real one takes for granted.
#include "base/error.h"
#include "comm/thread/thread_world.h"
#include "cuda/comm/nccl_memory.h"
#include "cuda/cuda_backend.h"
#include "cuda/emulated/runtime.h"
#include "engine/run_device.h"
#include "parity/layout.h"
#include "parity/training_run.h"
#include "spec/groups.h"

#include <nccl.h>

#include <gmock/gmock.h>

#include <array>

namespace echelon::testing {
namespace {

using ::testing::HasSubstr;

class Registration : public ::testing::Test {
 protected:
  ~Registration() override {
    emulated::set_num_devices(1);
    emulated::set_nccl_memory_error(ncclSuccess);
  }
  /// Trains with a GPU for each rank: what rank 0 says about its arena.
  static std::string trained(const Layout& layout) {
    const RunConfig config = config_of(layout);
    emulated::set_num_devices(config.mesh_shape().num_ranks());
    std::string reason;
    const std::unique_ptr<Backend> backend = cuda::make_cuda_backend(reason);
    const Blueprint blueprint(config);
    std::string said;
    run_thread_ranks(config.mesh_shape(), {.timeout_seconds = 60}, [&](Mesh& host) {
      const std::unique_ptr<RankDevice> device = open_device(*backend, blueprint, host, 1);
      RankRun run(blueprint, device->mesh(), device->ops(), device->memory());
      use_arena(*device, run.memory());
      run.model().initialize(1, device->ops());
      const FormulaBatches batches(config, Targets::all);
      (void)run.step().run(ProgramKind::training, training_input(config, batches, 1, LossScaler(config)));
      if (host.rank() == 0) said = device->choices();
    });
    EXPECT_EQ(emulated::num_windows(), 0);
    EXPECT_EQ(emulated::num_communicators(), 0);
    return said;
  }
};

TEST_F(Registration, LetsCollectivesUseTheArenaInPlace) {
  const int before = emulated::num_collectives_in_windows();
  EXPECT_THAT(trained({.shard = 2, .zero = 3, .layers = 2}),
              HasSubstr("NCCL: the arena is registered with 1 of 1 groups of ranks"));
  EXPECT_GT(emulated::num_collectives_in_windows(), before + 10);
}

// Stages have different plans: only the data-parallel ranks of one have the same.
TEST_F(Registration, IsForRanksWithEqualPlans) {
  EXPECT_THAT(trained({.replicate = 2, .pp = 2, .layers = 3}),
              HasSubstr("NCCL: the arena is registered with 1 of 3 groups of ranks"));
}

TEST_F(Registration, IsLeftOutWhereNcclGivesNoMemory) {
  emulated::set_nccl_memory_error(ncclSystemError);
  const int before = emulated::num_collectives_in_windows();
  EXPECT_THAT(trained({.shard = 2, .zero = 3, .layers = 2}),
              HasSubstr("NCCL copies through buffers of its own: ncclMemAlloc: unhandled system error"));
  EXPECT_EQ(emulated::num_collectives_in_windows(), before);
}

/// Two ranks, each with memory by NCCL and a mesh that has connected its data axes.
struct Pair {
  cuda::Device device;
  cuda::NcclMesh mesh;
  cuda::NcclMemory memory;
  explicit Pair(Mesh& host) : device(host.rank()), mesh(host, device, 60), memory(mesh, device) {
    mesh.connect({data_group});
  }
};
void on_two_gpus(const std::function<void(Mesh&)>& body) {
  emulated::set_num_devices(2);
  run_thread_ranks(MeshShape({{Axis::dp_replicate, 2}}), {.timeout_seconds = 60}, body);
}

TEST_F(Registration, ComparesThePlans) {
  for (const bool are_equal : {true, false})
    on_two_gpus([&](Mesh& host) {
      Pair pair(host);
      const Arena arena(4096, pair.memory);
      const std::uint64_t plan = are_equal ? 7 : static_cast<std::uint64_t>(host.rank());
      const std::string said = pair.mesh.register_arena({.base = arena.tensor(0, DType::int32, {1}).data,
                                                         .num_bytes = arena.num_bytes(),
                                                         .plan = plan,
                                                         .can_register = true},
                                                        "");
      EXPECT_THAT(said, HasSubstr(are_equal ? "with 1 of 1" : "with 0 of 1"));
      host.comm(world_group).barrier().wait();
      EXPECT_EQ(emulated::num_windows(), are_equal ? 2 : 0);
      host.comm(world_group).barrier().wait();
    });
}

// What a chip would do there is to write somewhere else.
TEST_F(Registration, NeedsEqualOffsets) {
  EXPECT_THROW(on_two_gpus([&](Mesh& host) {
                 Pair pair(host);
                 const Arena arena(8192, pair.memory);
                 (void)pair.mesh.register_arena({.base = arena.tensor(0, DType::int32, {1}).data,
                                                 .num_bytes = arena.num_bytes(),
                                                 .plan = 7,
                                                 .can_register = true},
                                                "");
                 const Tensor x = arena.tensor(host.rank() * 4096, DType::float32, {16});
                 pair.mesh.comm(data_group).all_reduce(x, ReduceOp::sum).wait();
                 pair.device.finish();
               }),
               Error);
}

TEST_F(Registration, IsOfMemoryByNcclAlone) {
  EXPECT_THROW(on_two_gpus([&](Mesh& host) {
                 Pair pair(host);
                 const Arena arena(4096, pair.device.memory());
                 (void)pair.mesh.register_arena({.base = arena.tensor(0, DType::int32, {1}).data,
                                                 .num_bytes = arena.num_bytes(),
                                                 .plan = 7,
                                                 .can_register = true},
                                                "");
               }),
               Error);
}

// "equal offsets", which the mesh asks of plans, hold for all ranks of a stage.
TEST(Plans, AreEqualWithinAStage) {
  for (const Layout& layout : {Layout{.replicate = 2, .shard = 2, .pp = 2, .zero = 3, .layers = 3},
                               Layout{.shard = 2, .tp = 2, .sequence_parallel = true}}) {
    const RunConfig config = config_of(layout);
    const Blueprint blueprint(config);
    std::map<int, std::set<std::uint64_t>> by_stage;
    for (int rank = 0; rank < blueprint.mesh().num_ranks(); ++rank) {
      if (blueprint.mesh().coordinate(rank, Axis::tp) > 0) continue;
      const RankBlueprint own = blueprint.rank(rank);
      by_stage[blueprint.mesh().coordinate(rank, Axis::pp)].insert(RankMemory(own, bare_addresses()).plan());
    }
    for (const auto& [stage, plans] : by_stage) EXPECT_EQ(plans.size(), 1U) << stage;
    EXPECT_EQ(by_stage.size(), static_cast<std::size_t>(layout.pp));
  }
}

}  // namespace
}  // namespace echelon::testing
