#include "cuda/ops/cuda_ops.h"

#include "cuda/ops/products.h"
#include "ops/check.h"

namespace echelon::cuda {

CudaOps::CudaOps(Device& device, const OpsOptions& options) : device_(device), options_(options), products_(std::make_unique<Products>(device, workspace_)) {}

CudaOps::~CudaOps() = default;

void CudaOps::matmul(const MatmulArgs& args) {
  check(args);
  products_->enqueue(args);
}

void CudaOps::upload(Tensor out, const void* host) {
  if (out.num_bytes() > 0) staging_.upload(out.data, host, out.num_bytes(), device_.compute());
}

void CudaOps::download(void* host, Tensor x) {
  if (x.num_bytes() > 0)
    check(cudaMemcpyAsync(host, x.data, static_cast<std::size_t>(x.num_bytes()), cudaMemcpyDeviceToHost, stream()), "a copy from the device");
  device_.compute().synchronize();
}

}  // namespace echelon::cuda
