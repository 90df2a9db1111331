// Memory for a piece of a stream's work. It is allocated and freed in the stream's order, so nothing waits. cudaMalloc
// and cudaFree may wait for the whole device, and so for a receive that another stream has posted.
#pragma once

#include "cuda/device/stream.h"

#include <cstddef>

namespace echelon::cuda {

class StreamMemory {
 public:
  StreamMemory(Stream& stream, std::size_t num_bytes) : stream_(stream) {
    void* address = nullptr;
    if (cudaMallocAsync(&address, num_bytes, stream.get()) == cudaSuccess)
      data_ = static_cast<std::byte*>(address);
    else
      (void)cudaGetLastError();
  }
  ~StreamMemory() {
    if (data_ != nullptr) cudaFreeAsync(data_, stream_.get());
  }
  StreamMemory(const StreamMemory&) = delete;
  StreamMemory& operator=(const StreamMemory&) = delete;

  /// Null if there is none.
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  Stream& stream_;
  std::byte* data_ = nullptr;
};

}  // namespace echelon::cuda
