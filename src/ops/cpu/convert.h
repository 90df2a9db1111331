// From float32 sums into 16-bit formats.
#pragma once

#include "tensor/dtype.h"

#include <cstddef>
#include <cstdint>

namespace echelon {

/// narrow[i] = wide[i], or += if it accumulates.
struct NarrowArgs {
  const float* wide = nullptr;
  std::byte* narrow = nullptr;
  DType dtype = DType::bfloat16;  // of narrow: of 16 bits
  std::int64_t count = 0;
  bool accumulates = false;
};
void narrow(const NarrowArgs& args);

}  // namespace echelon
