// Ranks that send around a ring and receive, on emulated GPUs: together, and in a graph, where operations take turns.
#include "comm/thread/thread_world.h"
#include "cuda/comm/nccl_mesh.h"
#include "cuda/emulated/runtime.h"
#include "cuda/graph_recorder.h"
#include "cuda/ops/cuda_ops.h"
#include "spec/groups.h"
#include "tensor/arena.h"

#include <nccl.h>

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace echelon {
namespace {

/// A value of each rank of a ring, which hops change and pass on.
class Ring {
 public:
  explicit Ring(Mesh& host) : device_(host.rank()), ops_(device_, {}), mesh_(host, device_, 30) {
    mesh_.connect({cp_group});
    const auto value = static_cast<float>(host.rank());
    ops_.upload(x_, &value);
  }
  void hop() {
    Comm& comm = mesh_.comm(cp_group);
    const int n = comm.size(), next = (comm.rank() + 1) % n, before = (comm.rank() + n - 1) % n;
    ops_.publish();
    std::vector<Pending> pending;
    mesh_.together([&] {
      pending.push_back(comm.send(x_, next));
      pending.push_back(comm.receive(y_, before));
    });
    for (Pending& each : pending) each.wait();
    ops_.copy(x_, y_);
    ops_.scale(x_, 2);
  }
  [[nodiscard]] float value() {
    float value = 0;
    ops_.download(&value, x_);
    return value;
  }
  [[nodiscard]] cuda::GraphRecorder& recorder() { return recorder_; }
  [[nodiscard]] std::int64_t sent_bytes() const { return mesh_.sent_bytes().at(cp_group); }

 private:
  cuda::Device device_;
  cuda::CudaOps ops_;
  cuda::NcclMesh mesh_;
  cuda::GraphRecorder recorder_{device_, ops_, &mesh_};
  Arena memory_{2 * alignment_bytes, device_.memory()};
  Tensor x_ = memory_.tensor(0, DType::float32, {1}), y_ = memory_.tensor(alignment_bytes, DType::float32, {1});
};

/// Of each rank after `steps`.
std::vector<float> values_after(int num_ranks, const std::function<void(Ring&)>& steps) {
  emulated::set_num_devices(num_ranks);
  std::vector<float> values(static_cast<std::size_t>(num_ranks));
  run_thread_ranks(MeshShape({{Axis::cp, num_ranks}}), {.timeout_seconds = 60}, [&](Mesh& host) {
    Ring ring(host);
    steps(ring);
    values[static_cast<std::size_t>(host.rank())] = ring.value();
  });
  emulated::set_num_devices(1);
  return values;
}

// A rank that sends first, in a graph, would wait for one that sends first, too.
TEST(Rings, HopInGraphs) {
  for (const int n : {2, 3, 5}) {
    const std::vector<float> values = values_after(n, [](Ring& ring) {
      ring.hop();
      ring.recorder().begin();
      for (int i = 0; i < 2; ++i) ring.hop();
      ring.recorder().end();
      for (int replay = 0; replay < 2; ++replay) ring.recorder().replay();
      EXPECT_EQ(ring.sent_bytes(), 5 * 4);
    });
    for (int rank = 0; rank < n; ++rank)
      EXPECT_EQ(values[static_cast<std::size_t>(rank)], static_cast<float>(32 * ((rank + 5 * n - 5) % n))) << rank;
  }
}

// Of one rank: all ranks have one group and one ring.
TEST(Rings, HaveOneCommunicator) {
  (void)values_after(4, [](Ring& ring) {
    ring.hop();
    EXPECT_EQ(emulated::num_communicators(), 2 * 4);
    ring.hop();
  });
}

}  // namespace
}  // namespace echelon
