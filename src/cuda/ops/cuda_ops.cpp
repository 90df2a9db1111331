#include "cuda/ops/cuda_ops.h"

#include "base/error.h"
#include "cuda/ops/cudnn_attention.h"
#include "cuda/ops/pending_product.h"
#include "ops/description.h"
#include "ops/gpu/joined_operations.h"
#include "ops/gpu/paired_operations.h"

namespace echelon::cuda {

CudaOps::CudaOps(Device& device, const OpsOptions& options)
    : device_(device),
      options_(options),
      workspace_(device.compute().get()),
      products_(std::make_unique<Products>(
          device, workspace_,
          ProductOptions{.float32_products = options.allows_tf32 ? Float32Products::tf32 : Float32Products::exact,
                         .is_timed = !options.deterministic})),
      pending_(std::make_unique<PendingProduct>(
          *products_, [this](const std::vector<Tensor>& dbias, const Tensor& sums) { add_sums(dbias, sums); })),
      joined_(std::make_unique<JoinedOperations>()),
      paired_(std::make_unique<PairedOperations>()),
      cudnn_(options.cudnn == CudnnUse::never
                 ? nullptr
                 : find_cudnn_attention({.workspace = workspace_,
                                         .num_multiprocessors = device.num_multiprocessors(),
                                         .deterministic = options.deterministic,
                                         .refuses_slow_plans = options.cudnn != CudnnUse::always},
                                        no_cudnn_)) {
  if (options.cudnn == CudnnUse::never) no_cudnn_ = "training.attention = own";
  require(cudnn_ != nullptr || options.cudnn != CudnnUse::always, "training.attention = cudnn, but {} (use auto)",
          no_cudnn_);
  require(!options.needs_float8 || device.capability() >= least_float8_capability,
          "training.linear_dtype = 'float8' needs a GPU of compute capability 8.9 or above, and {} has {}.{} (use an "
          "empty linear_dtype)",
          device.name(), device.capability() / 10, device.capability() % 10);
}

CudaOps::~CudaOps() = default;

// At any time one of the three holds something.
void CudaOps::flush() {
  pending_->flush();
  joined_->release([this](const auto& held) { compute_joined(held); });
  paired_->release([this](const auto& pair) { compute(pair.first); });
}

cudaStream_t CudaOps::stream(std::int64_t num_pieces) {
  flush();
  return device_.compute_with_room(num_pieces).get();
}

void CudaOps::publish() { flush(); }

void CudaOps::finish() {
  flush();
  device_.finish();
}

std::int64_t CudaOps::num_fused() const { return pending_->num_fused(); }

void CudaOps::compute(const MatmulArgs& args) { pending_->hold(args); }

void CudaOps::perform(const Operation& operation) {
  operation.visit([this](const auto& args) {
    check(args);
    if constexpr (requires { joined_->hold(args); }) {
      if (joined_->extends(args)) return;
      flush();
      joined_->hold(args);
      return;
    }
    if constexpr (requires { paired_->completed_by(args); })
      if (const auto pair = paired_->completed_by(args)) return compute_pair(*pair);
    if constexpr (requires { paired_->hold(args); }) {
      flush();
      return paired_->hold(args);
    }
    joined_->release([this](const auto& held) { this->compute_joined(held); });
    paired_->release([this](const auto& pair) { this->compute(pair.first); });
    compute(args);
  });
}

void CudaOps::upload(Tensor out, const void* host) {
  flush();
  if (out.num_bytes() > 0) staging_.upload(device_, out.data, host, out.num_bytes());
}

void CudaOps::download(void* host, Tensor x) {
  flush();
  device_.finish();  // a copy to memory that is not pinned would block without checks for failures
  if (x.num_bytes() > 0)
    check(cudaMemcpyAsync(host, x.data, static_cast<std::size_t>(x.num_bytes()), cudaMemcpyDeviceToHost, stream()),
          "a copy from the device");
  device_.compute().synchronize();
}

}  // namespace echelon::cuda
