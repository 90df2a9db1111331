#include "ops/cpu/cpu_ops.h"

#include "base/error.h"
#include "ops/cpu/blas.h"
#include "ops/cpu/gemm_choice.h"
#include "ops/cpu/gemm_kernels.h"
#include "ops/description.h"

#include <cstring>

namespace echelon {

namespace {

const GemmKernels& kernels_of_bfloat16(ProductKernels kernels) {
  if (const auto obstacle = obstacle_of_bfloat16(kernels)) throw Error(*obstacle);
  if (kernels == ProductKernels::native) return *bfloat16_kernels();
  return kernels == ProductKernels::amx ? *amx_kernels() : widening_kernels(DType::bfloat16);
}

}  // namespace

CpuOps::CpuOps(const CpuOptions& options)
    : CpuOps(options.num_threads, options.products ? *options.products : choose_products({}).choice) {}

CpuOps::CpuOps(int num_threads, const ProductChoice& products)
    : num_threads_(num_threads),
      blas_(Blas::loaded(products.core_type)),
      float32_kernels_(products.float32 == ProductKernels::own ? &float32_kernels() : nullptr),
      bfloat16_kernels_(kernels_of_bfloat16(products.bfloat16)),
      bfloat16_products_(products.bfloat16) {
  require(num_threads_ >= 1, "the cpu backend cannot compute with {} threads; it needs at least 1", num_threads_);
}

void CpuOps::perform(const Operation& operation) {
  operation.visit([this](const auto& args) {
    check(args);
    compute(args);
  });
}

void CpuOps::upload(Tensor out, const void* host) {
  if (out.num_bytes() > 0) std::memcpy(out.data, host, static_cast<std::size_t>(out.num_bytes()));
}

void CpuOps::download(void* host, Tensor x) {
  if (x.num_bytes() > 0) std::memcpy(host, x.data, static_cast<std::size_t>(x.num_bytes()));
}

std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options) { return std::make_unique<CpuOps>(options); }

}  // namespace echelon
