#include "ops/cpu/cpu_ops.h"

#include "ops/cpu/blas.h"

#include <cstring>

namespace echelon {

CpuOps::CpuOps(const CpuOptions& options) : num_threads_(options.num_threads) { static_cast<void>(Blas::loaded()); }

std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options) { return std::make_unique<CpuOps>(options); }

std::string blas_description() { return Blas::loaded().description(); }

}  // namespace echelon
