// Device memory in addition to the arena, for what one kernel of an operation passes to the next: partial sums over
// blocks of rows, sorted tokens, cuBLASLt's split sums. One per rank and of a fixed size, so that the device's bytes
// are the arena's and these. The compute stream orders all who use it: what an operation puts there lasts until the
// next operation, and two kernels of one operation share it by offsets.
#pragma once

#include "cuda/device/status.h"

#include <cassert>
#include <cstddef>
#include <cstdint>

namespace echelon::cuda {

class Workspace {
 public:
  static constexpr std::int64_t num_bytes = std::int64_t{32} << 20;  // what cuBLAS' documentation advises for Hopper
  static constexpr std::int64_t num_tickets = 4096, num_zeros = 64;
  static constexpr std::int64_t most_bytes =
      num_bytes - (num_tickets + num_zeros) * std::int64_t{sizeof(unsigned)};  // of values

  /// Its tickets and zeros are cleared on `stream`.
  explicit Workspace(cudaStream_t stream) {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), static_cast<std::size_t>(num_bytes)),
          "the workspace of operations");
    check(cudaMemsetAsync(tickets(), 0, num_bytes - most_bytes, stream), "clearing the tickets of operations");
  }
  ~Workspace() { cudaFree(data_); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// How many T fit. An operation that needs more works in chunks, or with fewer partial sums.
  template <class T>
  [[nodiscard]] static constexpr std::int64_t capacity() {
    return most_bytes / static_cast<std::int64_t>(sizeof(T));
  }
  /// Room for `count` T from `offset_bytes` on, aligned to 256 bytes if the offset is.
  template <class T>
  [[nodiscard]] T* as([[maybe_unused]] std::int64_t count, std::int64_t offset_bytes = 0) const {
    assert(offset_bytes + count * static_cast<std::int64_t>(sizeof(T)) <= most_bytes);
    return reinterpret_cast<T*>(data_ + offset_bytes);
  }
  /// Zeros, by which blocks of a kernel find out which of them is the last (cuda/device/tickets.h).
  [[nodiscard]] unsigned* tickets() const { return reinterpret_cast<unsigned*>(data_ + most_bytes); }
  /// More zeros, for the largest magnitudes of what a kernel writes (cuda/ops/amax.h).
  [[nodiscard]] unsigned* zeros() const { return tickets() + num_tickets; }

 private:
  std::byte* data_ = nullptr;
};

/// What operations of several kernels run with.
struct ComputeLane {
  cudaStream_t stream;
  int num_multiprocessors;
  const Workspace& workspace;
};

}  // namespace echelon::cuda
