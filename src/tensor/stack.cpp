#include "tensor/stack.h"

#include "base/error.h"

#include <algorithm>

namespace echelon {

Tensor Stack::take(DType dtype, Sizes sizes) {
  const std::int64_t offset = used_bytes_;
  used_bytes_ += aligned(sizes.num_elements() * size_of(dtype));
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  if (measures_) return {base_ == nullptr ? nullptr : base_ + offset, dtype, sizes};
  if (used_bytes_ > capacity_bytes_)
    throw Failure(fmt::format("the memory plan gave {} bytes to a region of which {} are asked: {} {}", capacity_bytes_,
                              used_bytes_, name_of(dtype), to_string(sizes)));
  return {base_ + offset, dtype, sizes};
}

}  // namespace echelon
