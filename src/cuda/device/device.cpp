#include "cuda/device/device.h"

#include "base/error.h"

namespace echelon::cuda {

std::byte* DeviceMemory::allocate(std::int64_t num_bytes) {
  void* address = nullptr;
  const cudaError_t error = cudaMalloc(&address, static_cast<std::size_t>(num_bytes));
  if (error == cudaErrorMemoryAllocation) {
    std::size_t free_bytes = 0, total_bytes = 0;
    (void)cudaGetLastError();
    check(cudaMemGetInfo(&free_bytes, &total_bytes), "the device's memory");
    throw Failure(fmt::format("the GPU has {} bytes free of {}, but the arena that the plan asks for has {}", free_bytes, total_bytes, num_bytes));
  }
  check(error, "memory for the arena");
  Stream stream;
  check(cudaMemsetAsync(address, 0, static_cast<std::size_t>(num_bytes), stream.get()), "zeros in the arena");
  stream.synchronize();
  return static_cast<std::byte*>(address);
}

void DeviceMemory::release(std::byte* address, std::int64_t /*num_bytes*/) { cudaFree(address); }

Device::Selected::Selected(int index) { check(cudaSetDevice(index), "the choice of a GPU"); }

Device::Device(int index) : selected_(index), index_(index) {
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&num_multiprocessors_, cudaDevAttrMultiProcessorCount, index), "the GPU's multiprocessors");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index), "the GPU's capability");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index), "the GPU's capability");
  capability_ = 10 * major + minor;
}

std::string Device::name() const {
  cudaDeviceProp properties = {};
  check(cudaGetDeviceProperties(&properties, index_), "the GPU's name");
  return static_cast<const char*>(properties.name);
}

int num_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

}  // namespace echelon::cuda
