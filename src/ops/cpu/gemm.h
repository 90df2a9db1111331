// Matmuls of float32, bfloat16 and float16 (Goto and van de Geijn 2008). Threads compute parts of c by themselves
// (gemm_grid.h). Where these would be too small, threads share the columns of b, pack them and multiply them with the
// first rows of a. Then they claim further blocks of rows, pack those of a and multiply them with all of b. They
// continue with the next columns or block of k without waiting for each other (gemm_agenda.h).
// Every value of c is summed over the same blocks of k in the same order. So its bits do not depend on the number of
// threads, on m and n, or on its place.
#pragma once

#include "ops/cpu/gemm_kernels.h"
#include "ops/cpu/gemm_splits.h"
#include "tensor/tensor.h"

#include <cstdint>

namespace echelon {

struct Factor {
  const std::byte* data = nullptr;
  std::int64_t stride = 0;
  bool is_transposed = false;
};

/// Row-major c[m, n] = a b, or += if it accumulates.
struct GemmProduct {
  Factor a, b;  // of kernels.dtype
  std::byte* c = nullptr;
  std::int64_t c_stride = 0;       // between rows
  DType c_dtype = DType::float32;  // or one of 16 bits: rounded once, at the end
  std::int64_t m = 0, n = 0, k = 0;
  bool accumulates = false;
};

void multiply(const GemmKernels& kernels, const GemmProduct& product, int num_threads);

/// Some rows and columns of c, by the calling thread alone.
void multiply_part(const GemmKernels& kernels, const GemmProduct& product, GemmRange rows, GemmRange columns);

}  // namespace echelon
