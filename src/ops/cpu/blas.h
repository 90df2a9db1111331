// OpenBLAS, loaded at run time, because the kernels it uses are chosen by an environment variable that it reads while
// it is being loaded, and because only its OpenMP build is correct when several threads call it at once.
#pragma once

#include <cstdint>
#include <string>

namespace echelon {

/// Row-major c[m, n] = op(a) op(b) + beta c, with the row strides lda, ldb, ldc.
template <class T>
struct GemmArgs {
  const T* a = nullptr;
  const T* b = nullptr;
  T* c = nullptr;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  bool transpose_a = false, transpose_b = false;
  T beta = 0;
};

/// Where a matmul may be split so that every value keeps its bits; 0: nowhere.
struct Grains {
  std::int64_t rows = 0, columns = 0;
};

/// Of kernels without wide vectors; empty where OpenBLAS has one kind of them.
extern const char* const scalar_core_type;

class Blas {
 public:
  /// The library of this process. The first call loads it with the kernels of that core type, which stay; empty: those
  /// that it chooses itself. Throws Error, naming the package to install, if there is none or only one that is wrong
  /// under threads.
  [[nodiscard]] static const Blas& loaded(const std::string& core_type);
  /// nullptr before the first call of loaded().
  [[nodiscard]] static const Blas* if_loaded();

  /// On the calling thread. Safe to call from many at once.
  void gemm(const GemmArgs<float>& args) const;
  void gemm(const GemmArgs<double>& args) const;

  /// Splits at multiples of these do not change the bits of any value, whatever the sizes. Found by trying every split
  /// of matmuls with odd edges (a test tries some): OpenBLAS sums over k in the same blocks for any m and n, but its
  /// kernels for the edges of a tile sum in another order. None are known for kernels other than SkylakeX and Haswell.
  template <class T>
  [[nodiscard]] Grains grains() const {
    return sizeof(T) == sizeof(float) ? float32_grains_ : float64_grains_;
  }

  /// OpenBLAS's name of its kernels: "SkylakeX".
  [[nodiscard]] const std::string& core_type() const { return core_type_; }
  /// "OpenBLAS 0.3.21 SkylakeX, openmp"
  [[nodiscard]] const std::string& description() const { return description_; }

 private:
  explicit Blas(const std::string& core_type);

  void (*set_num_threads_)(int) = nullptr;  // for calls from the calling thread alone; of the library's own OpenMP
  void (*sgemm_)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*,
                 int) = nullptr;
  void (*dgemm_)(int, int, int, int, int, int, double, const double*, int, const double*, int, double, double*,
                 int) = nullptr;
  Grains float32_grains_, float64_grains_;
  std::string core_type_, description_;
};

}  // namespace echelon
