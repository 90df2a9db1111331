#include "cuda/cuda_backend.h"

#include "base/error.h"
#include "cuda/comm/exchange.h"
#include "cuda/comm/nccl_memory.h"
#include "cuda/comm/nccl_mesh.h"
#include "cuda/comm/placement.h"
#include "cuda/comm/shared_gpu_transport.h"
#include "cuda/device/queues.h"
#include "cuda/graph_recorder.h"
#include "cuda/ops/cuda_ops.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

namespace echelon::cuda {
namespace {

constexpr int least_capability = 80;

CudnnUse use_of_cudnn(AttentionKernels kernels) {
  switch (kernels) {
    case AttentionKernels::automatic: return CudnnUse::where_possible;
    case AttentionKernels::cudnn: return CudnnUse::always;
    case AttentionKernels::own: return CudnnUse::never;
  }
  return CudnnUse::where_possible;
}

class CudaRankDevice final : public RankDevice {
 public:
  CudaRankDevice(Mesh& host, const RankOptions& options, const Placement& placement)
      : device_(placement.index),
        placement_(placement),
        ops_(device_, {.deterministic = options.deterministic,
                       .allows_tf32 = options.allows_tf32,
                       .needs_float8 = options.needs_float8,
                       .cudnn = use_of_cudnn(options.attention)}),
        device_transport_(device_) {
    // A rank alone needs no NCCL, but may ask for it to try its communicators and captures.
    const bool is_alone = host.shape().num_ranks() == 1 && options.backend != CommBackend::nccl;
    if (!placement.has_each_its_own || is_alone) mesh_ = host.for_device(device_transport_);
    if (!mesh_ && placement.has_each_its_own) {
      auto nccl = std::make_unique<NcclMesh>(host, device_, options.timeout_seconds);
      recorder_.emplace(device_, ops_, nccl.get());
      nccl_ = nccl.get();
      nccl_memory_.emplace(*nccl_, device_);
      mesh_ = std::move(nccl);
    } else if (is_alone) {
      recorder_.emplace(device_, ops_, nullptr);
    }
    require(
        mesh_ != nullptr,
        "{} processes would share GPU {} (use one process with threads as ranks (without mpirun), or a GPU for each)",
        placement.num_sharing, device_.index());
  }
  [[nodiscard]] Ops& ops() override { return ops_; }
  [[nodiscard]] Mesh& mesh() override { return *mesh_; }
  [[nodiscard]] MemorySpace& memory() override {
    if (nccl_memory_) return *nccl_memory_;
    return device_.memory();
  }
  [[nodiscard]] MemorySpace& pinned_memory() override { return device_.pinned_memory(); }
  [[nodiscard]] WorkRecorder* recorder() override { return recorder_ ? &*recorder_ : nullptr; }
  // A kernel that is loaded may hold the lock of the context and wait for the device. Pipeline ranks start transfers
  // that wait for work that is not enqueued yet, and threads of NCCL's may need the lock for any operation to end.
  [[nodiscard]] bool needs_warm_up() const override { return nccl_ != nullptr; }
  [[nodiscard]] std::string description() const override {
    const std::string gpu = fmt::format("{} (GPU {})", device_.name(), device_.index());
    const bool is_shared = placement_.num_sharing > 1, is_alone = nccl_ == nullptr;
    const std::string ranks = is_shared  ? fmt::format(", shared by {} ranks", placement_.num_sharing)
                              : is_alone ? ""
                                         : ", " + nccl_version();
    return fmt::format("{}{}, {}", gpu, ranks, ops_.attention_kernels());
  }

  [[nodiscard]] DeviceFacts facts() const override {
    return {.identity = placement_.gpu,
            .name = device_.name(),
            .memory_bytes = memory_bytes_of_gpu(device_.index()),
            .num_multiprocessors = device_.num_multiprocessors(),
            .multiplies_float8 = device_.capability() >= least_float8_capability};
  }
  // What libraries allocate when they are first used is left to them.
  [[nodiscard]] std::int64_t free_memory_bytes() const override {
    constexpr std::int64_t of_libraries = std::int64_t{256} << 20;
    return std::max<std::int64_t>(device_.free_memory_bytes() - of_libraries, 1);
  }
  [[nodiscard]] std::string choices() const override {
    const std::string attention = ops_.attention_choices();
    return attention + (attention.empty() || registration_.empty() ? "" : "\n") + registration_;
  }
  void use_arena(std::byte* base, std::int64_t num_bytes, std::uint64_t plan) override {
    if (nccl_ == nullptr) return;
    const bool has_windows = nccl().register_window != nullptr && nccl().deregister_window != nullptr;
    const bool is_of_nccl = nccl_memory_->is_of_nccl(base);
    const std::string reason = !is_of_nccl    ? nccl_memory_->reason()
                               : !has_windows ? nccl_version() + " has no ncclCommWindowRegister (2.27 has)"
                                              : "";
    registration_ = nccl_->register_arena(
        {.base = base, .num_bytes = num_bytes, .plan = plan, .can_register = is_of_nccl && has_windows}, reason);
  }

 private:
  Device device_;
  Placement placement_;
  CudaOps ops_;
  SharedGpuTransport device_transport_;
  std::unique_ptr<Mesh> mesh_;
  NcclMesh* nccl_ = nullptr;  // it is mesh_
  std::optional<NcclMemory> nccl_memory_;
  std::string registration_;               // what came of it
  std::optional<GraphRecorder> recorder_;  // not of ranks that share a GPU, whose exchanges the host arranges each time
};

// The same verdict on all ranks.
void require_possible(const RankOptions& options, const Placement& placement, int num_ranks) {
  if (placement.has_each_its_own) return;
  require(
      options.backend != CommBackend::nccl,
      "comm.backend = nccl needs a GPU for every rank, but {} ranks share GPU {} (use auto, or a mesh of fewer ranks)",
      placement.num_sharing, placement.index);
  require(num_ranks <= max_sharing_ranks,
          "the mesh has {} ranks (the degrees of [parallelism] multiplied), but those that share a GPU are at most {} "
          "(use {})",
          num_ranks, max_sharing_ranks, max_sharing_ranks);
}

class CudaBackend final : public Backend {
 public:
  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::cuda; }
  [[nodiscard]] int num_devices() const override { return cuda::num_devices(); }
  [[nodiscard]] std::unique_ptr<RankDevice> open(Mesh& host, const RankOptions& options) override {
    const Placement placement = place_on_gpu(host);
    require_possible(options, placement, host.shape().num_ranks());
    return std::make_unique<CudaRankDevice>(host, options, placement);
  }
};

std::string version(int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); }

// Why CUDA finds no GPU, as a clause.
std::string explain(cudaError_t error) {
  int driver = 0, runtime = 0;
  (void)cudaGetLastError();
  if (error == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess &&
      cudaRuntimeGetVersion(&runtime) == cudaSuccess)
    return driver == 0 ? "no NVIDIA driver is installed"
                       : fmt::format("the NVIDIA driver is of CUDA {}, but CUDA {} is needed", version(driver),
                                     version(runtime));
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (error == cudaErrorNoDevice || error == cudaSuccess)
    return visible == nullptr ? "the driver finds no GPU on this machine"
                              : fmt::format("CUDA_VISIBLE_DEVICES = '{}' leaves no GPU", visible);
  return fmt::format("CUDA does not start: {} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
}

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(std::string& reason) {
  request_queues();
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    reason = explain(error);
    return nullptr;
  }
  for (int i = 0; i < count; ++i) {
    if (capability_of_gpu(i) >= least_capability) continue;
    reason =
        fmt::format("GPU {} ({}) has compute capability {}.{}, but 8.0 is needed (CUDA_VISIBLE_DEVICES chooses others)",
                    i, name_of_gpu(i), capability_of_gpu(i) / 10, capability_of_gpu(i) % 10);
    return nullptr;
  }
  return std::make_unique<CudaBackend>();
}

}  // namespace echelon::cuda
