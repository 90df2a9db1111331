#include "ops/cpu/blas.h"

#include "base/error.h"
#include "ops/cpu/instruction_set.h"

#include <dlfcn.h>

#include <cstdlib>
#include <limits>
#include <sstream>
#include <string_view>
#include <type_traits>

namespace echelon {
namespace {

// From cblas.h and openblas_config.h.
constexpr int row_major = 101, no_transpose = 111, transpose = 112;
constexpr int parallel_by_openmp = 2;

#if defined(__x86_64__)
constexpr const char* openmp_build = "/usr/lib/x86_64-linux-gnu/openblas-openmp/libopenblas.so.0";

/// OpenBLAS's name of the best kernels; nullptr: leave the choice to OpenBLAS. It identifies CPUs by model, and uses
/// its oldest kernels for newer models. Where 512 bits are no faster than 256, its AVX2 kernels are faster
/// (docs/results/performance.md).
const char* best_core_type() {
  switch (largest_instruction_set()) {
    case InstructionSet::avx512: return is_amd_before_zen5() ? "Haswell" : "SkylakeX";
    case InstructionSet::avx2: return "Haswell";
    case InstructionSet::scalar: return instruction_set_cap().has_value() ? "Prescott" : nullptr;
  }
  return nullptr;
}
#else
constexpr const char* openmp_build = "/usr/lib/aarch64-linux-gnu/openblas-openmp/libopenblas.so.0";
const char* best_core_type() { return nullptr; }
#endif

void* open_library() {
  const bool is_capped = instruction_set_cap().has_value();
  // 0: keeps the user's choice.
  if (const char* core_type = best_core_type()) setenv("OPENBLAS_CORETYPE", core_type, is_capped ? 1 : 0);
  for (const char* path : {openmp_build, "libopenblaso.so.0", "libopenblas.so.0"})
    if (void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL)) return library;
  throw Error(
      "the cpu backend multiplies matrices with OpenBLAS and finds no libopenblas.so.0; install the Debian package "
      "libopenblas0-openmp");
}

template <class Function>
Function* symbol(void* library, const char* name) {
  if (void* address = dlsym(library, name)) return reinterpret_cast<Function*>(address);
  throw Error(
      fmt::format("the libopenblas.so.0 found here has no {}; install the Debian package libopenblas0-openmp", name));
}

int narrow(std::int64_t size) {
  if (size > std::numeric_limits<int>::max())
    throw Failure(fmt::format("matmul: a size of {} is more than OpenBLAS can count", size));
  return static_cast<int>(size);
}

template <class T, class Function>
void call(Function* gemm, const GemmArgs<T>& g) {
  gemm(row_major, g.transpose_a ? transpose : no_transpose, g.transpose_b ? transpose : no_transpose, narrow(g.m),
       narrow(g.n), narrow(g.k), T{1}, g.a, narrow(g.lda), g.b, narrow(g.ldb), g.beta, g.c, narrow(g.ldc));
}

}  // namespace

const Blas& Blas::loaded() {
  static const Blas blas;  // constant once loaded; a second library could not be told which kernels to use
  return blas;
}

Blas::Blas() {
  void* library = open_library();
  const auto config = symbol<char*()>(library, "openblas_get_config"),
             core = symbol<char*()>(library, "openblas_get_corename");
  if (symbol<int()>(library, "openblas_get_parallel")() != parallel_by_openmp)
    throw Error(
        "the libopenblas.so.0 found here is not the OpenMP build, and others are wrong or slow when ranks are threads; "
        "install libopenblas0-openmp");
  std::istringstream words(config());  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."
  std::string name, version;
  words >> name >> version;
  const char *suits = best_core_type(), *chosen = std::getenv("OPENBLAS_CORETYPE");
  const bool differs = suits != nullptr && chosen != nullptr && std::string_view(suits) != chosen;
  const std::string remark = differs ? fmt::format(" (by OPENBLAS_CORETYPE; {} suits this processor)", suits) : "";
  if (std::string_view(core()) == "SkylakeX") {
    float32_grains_ = {24, 16};
    float64_grains_ = {24, 0};
  } else if (std::string_view(core()) == "Haswell") {
    float32_grains_ = float64_grains_ = {24, 0};
  }
  const auto cap = instruction_set_cap();
  const std::string capped =
      cap.has_value() ? fmt::format("; nothing above {} (ECHELON_INSTRUCTION_SET)", name_of(*cap)) : "";
  description_ = fmt::format("{} {} {}{}, openmp{}", name, version, core(), remark, capped);
  set_num_threads_ = symbol<void(int)>(library, "omp_set_num_threads");
  sgemm_ = symbol<std::remove_pointer_t<decltype(sgemm_)>>(library, "cblas_sgemm");
  dgemm_ = symbol<std::remove_pointer_t<decltype(dgemm_)>>(library, "cblas_dgemm");
}

void Blas::gemm(const GemmArgs<float>& args) const {
  set_num_threads_(1);
  call(sgemm_, args);
}

void Blas::gemm(const GemmArgs<double>& args) const {
  set_num_threads_(1);
  call(dgemm_, args);
}

}  // namespace echelon
