// Between storage and arithmetic formats, for blocks that operations widen on their way.
#pragma once

#include "tensor/dtype.h"

#include <cstdint>

namespace echelon {

/// wide[rows, columns] (contiguous) = narrow, whose rows are `stride` apart.
struct WidenArgs {
  const bfloat16* narrow = nullptr;
  float* wide = nullptr;
  std::int64_t rows = 0, columns = 0, stride = 0;
  int num_threads = 1;
};
void widen(const WidenArgs& args);

/// narrow = wide, or += if it accumulates.
struct NarrowArgs {
  const float* wide = nullptr;
  bfloat16* narrow = nullptr;
  std::int64_t rows = 0, columns = 0, stride = 0;
  bool accumulates = false;
  int num_threads = 1;
};
void narrow(const NarrowArgs& args);

}  // namespace echelon
