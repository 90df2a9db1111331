// OpenBLAS chooses its kernels while it is loaded, and a library is loaded once; a copy of its file is another library.
#include "library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>

namespace echelon::bench {
namespace {

using Sgemm = void(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);

Sgemm* load(const std::string& kernels) {
  namespace fs = std::filesystem;
  const fs::path original = "/usr/lib/x86_64-linux-gnu/openblas-openmp/libopenblas.so.0",
                 copy = fs::temp_directory_path() / ("openblas-" + kernels + "-" + std::to_string(getpid()));
  if (!fs::exists(original)) return nullptr;
  fs::copy_file(original, copy);
  setenv("OPENBLAS_CORETYPE", kernels.c_str(), 1);
  void* library = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
  unsetenv("OPENBLAS_CORETYPE");
  fs::remove(copy);
  if (library == nullptr) return nullptr;
  reinterpret_cast<void (*)(int)>(dlsym(library, "omp_set_num_threads"))(1);
  const std::string loaded = reinterpret_cast<char* (*)()>(dlsym(library, "openblas_get_corename"))();
  return loaded == kernels ? reinterpret_cast<Sgemm*>(dlsym(library, "cblas_sgemm")) : nullptr;
}

}  // namespace

Product openblas_product(const std::string& kernels, const Shape& s, const Operands& operands) {
  static std::map<std::string, Sgemm*> loaded;
  if (!loaded.contains(kernels)) loaded[kernels] = load(kernels);
  Sgemm* gemm = loaded[kernels];
  if (gemm == nullptr) return std::nullopt;
  return [=] {
    constexpr int row_major = 101, no_transpose = 111, transpose = 112;
    const auto m = static_cast<int>(s.m), n = static_cast<int>(s.n), k = static_cast<int>(s.k);
    gemm(row_major, s.transposes_a() ? transpose : no_transpose, s.transposes_b() ? transpose : no_transpose, m, n, k,
         1.0F, static_cast<float*>(operands.a), s.transposes_a() ? m : k, static_cast<float*>(operands.b),
         s.transposes_b() ? k : n, s.accumulates() ? 1.0F : 0.0F, static_cast<float*>(operands.c), n);
  };
}

}  // namespace echelon::bench
