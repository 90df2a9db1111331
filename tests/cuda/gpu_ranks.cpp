#include "cuda/gpu_ranks.h"

#include "comm/numbers.h"
#include "comm/thread/thread_world.h"
#include "cuda/comm/nccl_mesh.h"
#include "cuda/comm/shared_gpu_transport.h"
#include "cuda/emulated/runtime.h"
#include "cuda/host_faced_mesh.h"

namespace echelon {
namespace {

void on_gpus(int num_gpus, const std::function<void()>& run) {
  struct Gpus {
    int count;
    explicit Gpus(int n) : count(n) { emulated::set_num_devices(n); }
    ~Gpus() {
      for (int i = count - 1; i >= 0; --i) {
        cudaSetDevice(i);
        cudaDeviceSynchronize();
      }
      EXPECT_EQ(emulated::num_waiting(), 0);
      emulated::set_num_devices(1);
    }
    Gpus(const Gpus&) = delete;
    Gpus& operator=(const Gpus&) = delete;
  };
  const Gpus gpus(num_gpus);
  run();
}

}  // namespace

void run_on_one_gpu(const MeshShape& shape, double timeout_seconds, const std::function<void(Mesh&)>& body) {
  on_gpus(1, [&] {
    run_thread_ranks(shape, {.timeout_seconds = timeout_seconds}, [&](Mesh& host) {
      cuda::Device device(0);
      cuda::SharedGpuTransport transport(device);
      const std::unique_ptr<Mesh> mesh = host.for_device(transport);
      cuda::HostFacedMesh faced(*mesh, device);
      body(faced);
    });
  });
}

void run_on_own_gpus(const MeshShape& shape, double timeout_seconds, const std::function<void(Mesh&)>& body) {
  on_gpus(shape.num_ranks(), [&] {
    run_thread_ranks(shape, {.timeout_seconds = 60}, [&](Mesh& host) {
      cuda::Device device(host.rank());
      cuda::NcclMesh mesh(host, device, timeout_seconds);
      mesh.connect({conformance::line_group, {{Axis::pp}}});
      mesh.connect_neighbours(conformance::line_group);
      cuda::HostFacedMesh faced(mesh, device);
      body(faced);
    });
  });
}

std::string outcome_of(RunGpuRanks& run, int n, const std::function<void(Mesh&, Comm&)>& body, double timeout_seconds) {
  try {
    run(conformance::line(n), timeout_seconds, [&](Mesh& mesh) { body(mesh, mesh.comm(conformance::line_group)); });
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void all_reduce(Comm& comm, std::int64_t num_elements) {
  conformance::Buffer x(DType::float32, num_elements);
  comm.all_reduce(x.tensor(), ReduceOp::sum).wait();
}

}  // namespace echelon
