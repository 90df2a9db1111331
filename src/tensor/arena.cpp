#include "tensor/arena.h"

#include "base/error.h"

namespace echelon {

Arena::Arena(std::int64_t num_bytes, MemorySpace& space) : space_(space), num_bytes_(num_bytes) {
  if (num_bytes > 0) base_ = space.allocate(num_bytes);
}

Arena::~Arena() {
  if (base_ != nullptr) space_.release(base_, num_bytes_);
}

Stack Arena::region(std::int64_t offset, std::int64_t num_bytes) const {
  if (offset < 0 || offset + num_bytes > num_bytes_)
    throw Failure(
        fmt::format("region [{}, {}) is outside an arena of {} bytes", offset, offset + num_bytes, num_bytes_));
  return {base_ + offset, num_bytes};
}

Tensor Arena::tensor(std::int64_t offset, DType dtype, Sizes sizes) const {
  return region(offset, aligned(sizes.num_elements() * size_of(dtype))).take(dtype, sizes);
}

}  // namespace echelon
