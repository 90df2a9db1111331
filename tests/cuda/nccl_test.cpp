// How ranks with an emulated device each, by an emulated NCCL, start, end and fail.
#include "comm/numbers.h"
#include "comm/thread/thread_world.h"
#include "cuda/comm/nccl_library.h"
#include "cuda/comm/nccl_mesh.h"
#include "cuda/cuda_backend.h"
#include "cuda/emulated/runtime.h"
#include "cuda/gpu_ranks.h"
#include "spec/groups.h"
#include "tensor/arena.h"

#include <nccl.h>

#include <gmock/gmock.h>

#include <functional>

namespace echelon {
namespace {

using conformance::Buffer;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Each receives before it sends, whatever the others do first.
TEST(Nccl, NeighboursOfAPipelineMayStartInAnyOrder) {
  run_on_own_gpus(MeshShape({{Axis::pp, 3}}), 60, [](Mesh& mesh) {
    Comm& comm = mesh.comm({{Axis::pp}});
    const int next = (comm.rank() + 1) % 3, previous = (comm.rank() + 2) % 3;
    Buffer x = conformance::numbers(DType::float32, 100, comm.rank()), y(DType::float32, 100);
    Pending received = comm.receive(y.tensor(), previous);
    Pending sent = comm.send(x.tensor(), next);
    received.wait();
    sent.wait();
    conformance::expect_same(y, conformance::numbers(DType::float32, 100, previous), "around a ring");
  });
}

// So that one GPU can try communicators.
TEST(Nccl, IsUsedByARankAloneThatAsksForIt) {
  std::string reason;
  const std::unique_ptr<Backend> backend = cuda::make_cuda_backend(reason);
  for (const CommBackend asked_for : {CommBackend::automatic, CommBackend::nccl})
    run_thread_ranks(MeshShape(), {}, [&](Mesh& host) {
      const std::unique_ptr<RankDevice> device = backend->open(host, {.backend = asked_for});
      EXPECT_EQ(device->description().find("NCCL") != std::string::npos, asked_for == CommBackend::nccl);
      const Arena memory(alignment_bytes, device->memory());
      const Tensor x = memory.tensor(0, DType::float32, {1});
      device->ops().fill(x, 3);
      device->mesh().comm({{Axis::tp}}).all_reduce(x, ReduceOp::sum).wait();
      float sum = 0;
      device->ops().download(&sum, x);
      EXPECT_EQ(sum, 3);
    });
}

// In the middle, and while the others connect.
TEST(Nccl, ARankThatThrowsReleasesAllThatWait) {
  for (int round = 0; round < 8; ++round)
    EXPECT_EQ(outcome_of(run_on_own_gpus, 4,
                         [&](Mesh& mesh, Comm& comm) {
                           if (round < 4) all_reduce(comm, 10);
                           if (mesh.rank() == round % 4) throw Error("left in the middle");
                           for (;;) all_reduce(comm, 10);
                         }),
              "rank " + std::to_string(round % 4) + ": left in the middle");
}

// On the others a kernel of one communicator stands behind one of another communicator, which waits for the rank that
// left.
TEST(Nccl, CommunicatorsThatStandBehindEachOtherEndTogether) {
  emulated::set_num_devices(4);
  const auto run = [] {
    run_thread_ranks(MeshShape({{Axis::dp_replicate, 2}, {Axis::tp, 2}}), {.timeout_seconds = 60}, [](Mesh& host) {
      cuda::Device device(host.rank());
      cuda::NcclMesh mesh(host, device, 60);
      const Arena memory(alignment_bytes, device.memory());
      const Tensor x = memory.tensor(0, DType::float32, {10});
      Comm &inner = mesh.comm({{Axis::tp}}), &outer = mesh.comm({{Axis::dp_replicate}});
      for (int round = 0; round < 2; ++round) {
        if (round == 1 && mesh.rank() == 2) throw Error("left in the middle");
        for (Comm* comm : {&outer, &inner}) comm->all_reduce(x, ReduceOp::sum).wait();
        device.finish();
      }
    });
  };
  EXPECT_THAT(run, ThrowsMessage<Error>("rank 2: left in the middle"));
  emulated::set_num_devices(1);
}

TEST(Nccl, ALongWaitNamesTheOperation) {
  const auto miss_the_second = [](Mesh& mesh, Comm& comm) {
    all_reduce(comm, 20);
    if (mesh.rank() != 2) all_reduce(comm, 10);
  };
  const auto second = HasSubstr("all_reduce(sum) of 10 float32 in group dp_replicate (ranks 0, 1, 2, 3)");
  EXPECT_THAT(outcome_of(run_on_own_gpus, 4, miss_the_second, 0.2),
              AllOf(HasSubstr("not done after 0.2 s (comm.timeout_seconds); rank "), second));
  const auto miss_the_first = [](Mesh& mesh, Comm& comm) {
    if (mesh.rank() != 2) all_reduce(comm, 10);
  };
  EXPECT_THAT(outcome_of(run_on_own_gpus, 4, miss_the_first, 0.2),
              AllOf(HasSubstr("ranks do not connect after 0.2 s (comm.timeout_seconds); rank "),
                    HasSubstr("waits among ranks 0, 1, 2, 3 with "), second));
}

// What rank 1 has not started stands on rank 0's device, while its host enqueues more than the driver takes.
TEST(Nccl, AHostFarAheadOfItsDeviceSeesWhatBecameOfOtherRanks) {
  emulated::set_num_devices(2);
  const auto run = [](double timeout_seconds, const std::function<void()>& rank_1) {
    run_thread_ranks(MeshShape({{Axis::dp_replicate, 2}}), {.timeout_seconds = 60}, [&](Mesh& host) {
      cuda::Device device(host.rank());
      cuda::NcclMesh mesh(host, device, timeout_seconds);
      const Arena memory(alignment_bytes, device.memory());
      const Tensor x = memory.tensor(0, DType::float32, {10});
      Comm& comm = mesh.comm({{Axis::dp_replicate}});
      comm.all_reduce(x, ReduceOp::sum).wait();
      device.finish();
      if (mesh.rank() == 1) return rank_1();
      comm.all_reduce(x, ReduceOp::sum).wait();
      constexpr int too_many = 3000;
      for (int i = 0; i < too_many; ++i) device.copy(x.data, x.data + x.num_bytes() / 2, x.num_bytes() / 2);
      device.finish();
    });
  };
  EXPECT_THAT([&] { run(60, [] { throw Error("left in the middle"); }); },
              ThrowsMessage<Error>("rank 1: left in the middle"));
  EXPECT_THAT([&] { run(0.2, [] {}); },
              ThrowsMessage<Error>(
                  HasSubstr("not done after 0.2 s (comm.timeout_seconds); rank 0 waits for all_reduce(sum) of 10")));
  emulated::set_num_devices(1);
}

TEST(Nccl, OperationsThatAreStartedTogetherAreOneLaunch) {
  emulated::set_num_devices(2);
  run_thread_ranks(MeshShape({{Axis::dp_replicate, 2}}), {.timeout_seconds = 60}, [](Mesh& host) {
    cuda::Device device(host.rank());
    cuda::NcclMesh mesh(host, device, 60);
    const Arena memory(3 * alignment_bytes, device.memory());
    Comm& comm = mesh.comm({{Axis::dp_replicate}});
    std::vector<Tensor> buckets;
    for (int b = 0; b < 3; ++b) buckets.push_back(memory.tensor(b * alignment_bytes, DType::float32, {4}));
    std::vector<float> ones(4, 1), sums(4);
    for (const Tensor& x : buckets)
      cudaMemcpyAsync(x.data, ones.data(), 16, cudaMemcpyHostToDevice, device.compute().get());
    const int before = emulated::num_nccl_launches();
    host.comm({world_axes}).barrier().wait();
    std::vector<Pending> pending;
    mesh.together([&] {
      for (const Tensor& x : buckets) pending.push_back(comm.all_reduce(x, ReduceOp::sum));
    });
    for (Pending& each : pending) each.wait();
    device.finish();
    host.comm({world_axes}).barrier().wait();
    EXPECT_EQ(emulated::num_nccl_launches() - before, 2) << "one of each rank";
    for (const Tensor& x : buckets) {
      cudaMemcpyAsync(sums.data(), x.data, 16, cudaMemcpyDeviceToHost, device.compute().get());
      device.finish();
      EXPECT_EQ(sums, std::vector<float>(4, 2));
    }
  });
  emulated::set_num_devices(1);
}

// The whole mesh, the data axes and the shards take turns anyway. What layers wait for has buffers of its own, and so
// have the replicas, whose sums overlap with those of the shards.
TEST(Nccl, GroupsThatTakeTurnsShareBuffers) {
  const auto splits_of = [](const AxisDegrees& degrees, const std::vector<Group>& groups) {
    const MeshShape shape(degrees);
    emulated::set_num_devices(shape.num_ranks());
    const emulated::Splits before = emulated::num_splits();
    run_thread_ranks(shape, {.timeout_seconds = 60}, [&](Mesh& host) {
      cuda::Device device(host.rank());
      cuda::NcclMesh mesh(host, device, 60);
      mesh.connect(groups);
      const Arena memory(alignment_bytes, device.memory());
      const Tensor x = memory.tensor(0, DType::float32, {4});
      for (const Group& group : groups) mesh.comm(group).all_reduce(x, ReduceOp::sum).wait();
      device.finish();
    });
    emulated::set_num_devices(1);
    const emulated::Splits after = emulated::num_splits();
    EXPECT_EQ(after.sharing, after.all);
    EXPECT_EQ(emulated::num_communicators(), 0);
    return after.all - before.all;
  };
  const std::vector<Group> all = {step_group, data_group, shard_group, replicate_group, tp_group};
  EXPECT_EQ(splits_of({{Axis::dp_shard, 2}}, all), 0);
  EXPECT_EQ(splits_of({{Axis::dp_shard, 2}, {Axis::tp, 2}}, all), 4) << "the data axes, of each rank";
  EXPECT_EQ(splits_of({{Axis::dp_shard, 2}, {Axis::dp_replicate, 2}}, all), 4) << "the shards";
  EXPECT_EQ(splits_of({{Axis::dp_shard, 2}, {Axis::dp_replicate, 2}, {Axis::tp, 2}}, all), 16) << "both";
  EXPECT_EQ(splits_of({{Axis::tp, 4}}, {step_group, tp_group, kv_replica_group(2)}), 4) << "kv heads";
}

// An all-reduce among 4 ranks has two neighbours in its ring; with two of them the rank of the pair has one of these.
TEST(Nccl, ACommunicatorTakesMemoryForItsBlocksAndForNewNeighbours) {
  constexpr int n = 4;
  const std::int64_t block = emulated::bytes_of_a_block;
  emulated::set_num_devices(n);
  const auto taken_by = [&](const std::vector<Group>& groups) {
    std::int64_t before = 0, after = 0;
    run_thread_ranks(MeshShape({{Axis::dp_shard, 2}, {Axis::tp, 2}}), {.timeout_seconds = 60}, [&](Mesh& host) {
      cuda::Device device(host.rank());
      cuda::NcclMesh mesh(host, device, 60);
      host.comm({world_axes}).barrier().wait();
      if (host.rank() == 0) before = emulated::num_allocated_bytes();
      host.comm({world_axes}).barrier().wait();
      mesh.connect(groups);
      host.comm({world_axes}).barrier().wait();
      if (host.rank() == 0) after = emulated::num_allocated_bytes();
      host.comm({world_axes}).barrier().wait();
    });
    return (after - before) / n;
  };
  EXPECT_EQ(taken_by({tp_group}), emulated::bytes_of_a_communicator);
  EXPECT_EQ(taken_by({step_group}), 16 * block);
  EXPECT_EQ(taken_by({data_group}), 16 * block);
  // Ranks 0 and 2 are no neighbours among 0, 1, 2, 3.
  EXPECT_EQ(taken_by({step_group, data_group}), (16 + 16) * block);
  EXPECT_EQ(taken_by({step_group, world_group}), emulated::bytes_of_a_communicator) << "the same ranks";
  emulated::set_num_devices(1);
}

// NCCL's rules, which a mesh keeps: an emulation that allowed more would hide a fault.
TEST(EmulatedNccl, SplitsAsNcclDoes) {
  emulated::set_num_devices(2);
  run_thread_ranks(MeshShape({{Axis::dp_shard, 2}}), {.timeout_seconds = 60}, [](Mesh& host) {
    const cuda::Device device(host.rank());
    ncclUniqueId id = {};
    if (host.rank() == 0) ncclGetUniqueId(&id);
    Tensor words(&id, DType::int32, {NCCL_UNIQUE_ID_BYTES / 4});
    host.comm({world_axes}).broadcast(words, 0).wait();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.splitShare = 1;
    ncclComm_t parent = nullptr, child = nullptr, none = nullptr;
    const auto await = [](ncclComm_t comm) {
      ncclResult_t state = ncclInProgress;
      while (state == ncclInProgress) ncclCommGetAsyncError(comm, &state);
      EXPECT_EQ(state, ncclSuccess);
    };
    ncclConfig_t wrong = config;
    wrong.maxCTAs = 0;
    EXPECT_EQ(ncclCommInitRankConfig(&parent, 2, id, host.rank(), &wrong), ncclInvalidArgument);
    EXPECT_EQ(ncclCommInitRankConfig(&parent, 2, id, host.rank(), &config), ncclInProgress);
    await(parent);
    // Rank 1 is the first of the child, as their keys say.
    EXPECT_EQ(ncclCommSplit(parent, 7, -host.rank(), &child, &config), ncclInProgress);
    EXPECT_EQ(child, nullptr);
    host.comm({world_axes}).barrier().wait();
    EXPECT_EQ(ncclCommSplit(parent, -5, 0, &none, &config), ncclInvalidArgument);
    await(parent);
    ASSERT_NE(child, nullptr);
    await(child);
    // Of one rank only, which has no other.
    EXPECT_EQ(ncclCommSplit(parent, host.rank() == 0 ? 3 : NCCL_SPLIT_NOCOLOR, 0, &none, nullptr), ncclInProgress);
    await(parent);
    EXPECT_EQ(none != nullptr, host.rank() == 0);
    ncclCommAbort(parent);
    for (ncclComm_t comm : {child, none})
      if (comm != nullptr) ncclCommAbort(comm);
  });
  emulated::set_num_devices(1);
}

// NCCL frees communicators in threads of its own, unless they are finalized first: such a thread would work on while
// the rank frees its memory and the process ends.
TEST(Nccl, NothingIsLeftOfItWhenRanksEnd) {
  ASSERT_EQ(outcome_of(run_on_own_gpus, 4, [](Mesh&, Comm& comm) { all_reduce(comm, 10); }), "");
  EXPECT_EQ(emulated::num_communicators(), 0);
}
TEST(Nccl, NothingIsLeftOfItWhenARankFails) {
  ASSERT_NE(outcome_of(run_on_own_gpus, 4,
                       [](Mesh& mesh, Comm& comm) {
                         all_reduce(comm, 10);
                         if (mesh.rank() == 1) throw Error("left in the middle");
                         all_reduce(comm, 10);
                       }),
            "");
  EXPECT_EQ(emulated::num_communicators(), 0);
}

TEST(NcclLibrary, IsNeededForCommunicatorsOnly) {
  EXPECT_THAT([] { (void)cuda::functions_of({.find = {}, .reason = "libnccl.so.2: no such file"}); },
              ThrowsMessage<Error>("several ranks with a GPU each need NCCL, but libnccl.so.2: no such file (add its "
                                   "folder to LD_LIBRARY_PATH, or use one GPU)"));
  const auto old = [](const char* name) -> void* {
    static int any;
    return std::string(name) == "ncclCommFinalize" ? nullptr : &any;
  };
  EXPECT_THAT([&] { (void)cuda::functions_of({.find = old, .reason = {}}); },
              ThrowsMessage<Error>("libnccl.so.2 has no ncclCommFinalize (use NCCL 2.18 or newer)"));
}

TEST(Nccl, FewerQueuesThanStreamsAreRefused) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "2", 1);
  const std::string outcome = outcome_of(run_on_own_gpus, 2, [](Mesh&, Comm&) {});
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  EXPECT_THAT(outcome, HasSubstr("CUDA_DEVICE_MAX_CONNECTIONS = '2', but a rank of this run has 3 streams"));
}

TEST(Nccl, AnErrorOfTheNetworkEndsAllRanks) {
  const std::string outcome = outcome_of(run_on_own_gpus, 3, [](Mesh& mesh, Comm& comm) {
    all_reduce(comm, 10);
    comm.barrier().wait();
    if (mesh.rank() == 1) emulated::set_nccl_error(ncclRemoteError);
    for (;;) all_reduce(comm, 10);
  });
  emulated::set_nccl_error(ncclSuccess);
  EXPECT_THAT(outcome, AllOf(HasSubstr(": NCCL "), HasSubstr(": remote process exited or there was a network error")));
}

TEST(Nccl, WhatIsDroppedWithoutAWaitIsNamed) {
  const std::string outcome = outcome_of(run_on_own_gpus, 3, [](Mesh& mesh, Comm& comm) {
    Buffer x(DType::float32, 10);
    Pending reduced = comm.all_reduce(x.tensor(), ReduceOp::sum);
    if (mesh.rank() != 1) reduced.wait();
  });
  EXPECT_THAT(outcome, HasSubstr("rank 1 dropped, without waiting for it, its all_reduce(sum) of 10 float32"));
}

}  // namespace
}  // namespace echelon
