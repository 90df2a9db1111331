#include "cuda/cuda_backend.h"

#include "base/error.h"
#include "cuda/ops/cuda_ops.h"

namespace echelon::cuda {
namespace {

class CudaRankDevice final : public RankDevice {
 public:
  CudaRankDevice(Mesh& mesh, const RankOptions& options)
      : device_(0), ops_(device_, {.deterministic = options.deterministic, .allows_tf32 = options.allows_tf32}), mesh_(mesh) {
    if (mesh.shape().num_ranks() > 1) throw Failure("several ranks on GPUs are not there yet");
  }
  [[nodiscard]] Ops& ops() override { return ops_; }
  [[nodiscard]] Mesh& mesh() override { return mesh_; }
  [[nodiscard]] MemorySpace& memory() override { return device_.memory(); }
  [[nodiscard]] std::string description() const override { return fmt::format("{} (GPU {})", device_.name(), device_.index()); }

 private:
  Device device_;
  CudaOps ops_;
  Mesh& mesh_;
};

class CudaBackend final : public Backend {
 public:
  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::cuda; }
  [[nodiscard]] std::int64_t memory_bytes() const override {
    std::int64_t sum = 0;
    for (int i = 0; i < num_devices(); ++i) {
      cudaDeviceProp properties = {};
      check(cudaGetDeviceProperties(&properties, i), "a GPU's memory");
      sum += static_cast<std::int64_t>(properties.totalGlobalMem);
    }
    return sum;
  }
  [[nodiscard]] std::unique_ptr<RankDevice> open(Mesh& host, const RankOptions& options) override { return std::make_unique<CudaRankDevice>(host, options); }
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(std::string& reason) {
  if (num_devices() == 0) {
    reason = "the driver finds no GPU on this machine";
    return nullptr;
  }
  return std::make_unique<CudaBackend>();
}

}  // namespace echelon::cuda
