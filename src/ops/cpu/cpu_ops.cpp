#include "ops/cpu/cpu_ops.h"

#include "base/error.h"
#include "ops/cpu/blas.h"
#include "ops/cpu/gemm_choice.h"
#include "ops/description.h"

#include <cstring>

namespace echelon {

CpuOps::CpuOps(const CpuOptions& options) : num_threads_(options.num_threads) {
  require(num_threads_ >= 1, "the cpu backend cannot compute with {} threads; it needs at least 1", num_threads_);
  static_cast<void>(Blas::loaded());
  static_cast<void>(chosen_float32_kernels());
  static_cast<void>(chosen_bfloat16_kernels());
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

std::string blas_description() { return Blas::loaded().description() + "; " + describe_gemm_choice(); }

}  // namespace echelon
