#include "ops/cpu/blas.h"

#include "base/error.h"
#include "ops/cpu/instruction_set.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>
#include <type_traits>

namespace echelon {
namespace {

// From cblas.h and openblas_config.h.
constexpr int row_major = 101, no_transpose = 111, transpose = 112;
constexpr int parallel_by_openmp = 2;

#if defined(__x86_64__)
constexpr const char* openmp_build = "/usr/lib/x86_64-linux-gnu/openblas-openmp/libopenblas.so.0";

#else
constexpr const char* openmp_build = "/usr/lib/aarch64-linux-gnu/openblas-openmp/libopenblas.so.0";
#endif

/// Sets OPENBLAS_CORETYPE while the library is loaded, which reads it then. The user's value is restored, because a
/// later choice asks for it.
class CoreTypeSetting {
 public:
  explicit CoreTypeSetting(const std::string& core_type) {
    if (const char* value = std::getenv(variable)) before_ = value;
    if (!core_type.empty()) setenv(variable, core_type.c_str(), 1);
  }
  ~CoreTypeSetting() { before_ ? setenv(variable, before_->c_str(), 1) : unsetenv(variable); }
  CoreTypeSetting(const CoreTypeSetting&) = delete;
  CoreTypeSetting& operator=(const CoreTypeSetting&) = delete;

 private:
  static constexpr const char* variable = "OPENBLAS_CORETYPE";
  std::optional<std::string> before_;
};

/// As OpenBLAS counts them while it is loaded.
std::size_t num_blas_threads() {
  const std::size_t num_cores = std::max(std::thread::hardware_concurrency(), 1U);
  for (const char* variable : {"OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"})
    if (const char* value = std::getenv(variable); value != nullptr && std::atoi(value) > 0)
      return std::min(static_cast<std::size_t>(std::atoi(value)), num_cores);
  return num_cores;
}

/// OpenBLAS gets a buffer for each of its threads while it is loaded, and where it gets none, tries again forever.
/// Ranks that multiply at the same time need one each, for which this does not look.
void require_buffers() {
  constexpr std::size_t buffer_bytes = std::size_t{128} << 20U;  // of OpenBLAS 0.3.21 on x86-64
  const std::size_t num_bytes = num_blas_threads() * buffer_bytes;
  void* buffers = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (buffers == MAP_FAILED)
    throw Failure(
        fmt::format("there is no memory for OpenBLAS's buffers of {} MiB in all, one for each thread: raise "
                    "the limit of the address space (ulimit -v) or lower OMP_NUM_THREADS",
                    num_bytes >> 20U));
  munmap(buffers, num_bytes);
}

void* open_library(const std::string& core_type) {
  require_buffers();
  const CoreTypeSetting setting(core_type);
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

std::atomic<const Blas*> known = nullptr;

template <class T, class Function>
void call(Function* gemm, const GemmArgs<T>& g) {
  gemm(row_major, g.transpose_a ? transpose : no_transpose, g.transpose_b ? transpose : no_transpose, narrow(g.m),
       narrow(g.n), narrow(g.k), T{1}, g.a, narrow(g.lda), g.b, narrow(g.ldb), g.beta, g.c, narrow(g.ldc));
}

}  // namespace

#if defined(__x86_64__)
const char* const scalar_core_type = "Prescott";
#else
const char* const scalar_core_type = "";
#endif

const Blas& Blas::loaded(const std::string& core_type) {
  static const Blas blas(core_type);  // constant once loaded; a second library could not be told which kernels to use
  known = &blas;
  return blas;
}

const Blas* Blas::if_loaded() { return known; }

Blas::Blas(const std::string& core_type) {
  void* library = open_library(core_type);
  const auto config = symbol<char*()>(library, "openblas_get_config"),
             core = symbol<char*()>(library, "openblas_get_corename");
  if (symbol<int()>(library, "openblas_get_parallel")() != parallel_by_openmp)
    throw Error(
        "the libopenblas.so.0 found here is not the OpenMP build, and others are wrong or slow when ranks are threads; "
        "install libopenblas0-openmp");
  std::istringstream words(config());  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."
  std::string name, version;
  words >> name >> version;
  core_type_ = core();
  if (core_type_ == "SkylakeX") {
    float32_grains_ = {24, 16};
    float64_grains_ = {24, 0};
  } else if (core_type_ == "Haswell") {
    float32_grains_ = float64_grains_ = {24, 0};
  }
  const auto cap = instruction_set_cap();
  const std::string capped =
      cap.has_value() ? fmt::format("; nothing above {} (ECHELON_INSTRUCTION_SET)", name_of(*cap)) : "";
  description_ = fmt::format("{} {} {}, openmp{}", name, version, core_type_, capped);
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
