#include "cuda/device/device.h"

#include "base/error.h"

#include <cstring>
#include <exception>

namespace echelon::cuda {

std::byte* DeviceMemory::allocate(std::int64_t num_bytes) {
  if (num_bytes == 0) return nullptr;
  void* address = nullptr;
  const cudaError_t error = cudaMalloc(&address, static_cast<std::size_t>(num_bytes));
  if (error == cudaErrorMemoryAllocation) {
    std::size_t free_bytes = 0, total_bytes = 0;
    (void)cudaGetLastError();
    check(cudaMemGetInfo(&free_bytes, &total_bytes), "the device's memory");
    throw Failure(fmt::format("the GPU has {} bytes free of {}, but the arena that the plan asks for has {}",
                              free_bytes, total_bytes, num_bytes));
  }
  check(error, "memory for the arena");
  Device::clear(address, num_bytes);
  return static_cast<std::byte*>(address);
}

void DeviceMemory::release(std::byte* address, std::int64_t /*num_bytes*/) {
  if (watch_ != nullptr && std::uncaught_exceptions() > 0) watch_->give_up();
  cudaFree(address);
}

void Device::clear(void* x, std::int64_t num_bytes) {
  Stream stream;
  check(cudaMemsetAsync(x, 0, static_cast<std::size_t>(num_bytes), stream.get()), "zeros in the arena");
  stream.synchronize();
}

std::byte* PinnedMemory::allocate(std::int64_t num_bytes) {
  if (num_bytes == 0) return nullptr;
  void* address = nullptr;
  const cudaError_t error = cudaMallocHost(&address, static_cast<std::size_t>(num_bytes));
  if (error == cudaErrorMemoryAllocation)
    throw Failure(fmt::format("the host has no {} bytes of memory to pin", num_bytes));
  check(error, "pinned memory");
  std::memset(address, 0, static_cast<std::size_t>(num_bytes));
  return static_cast<std::byte*>(address);
}

void PinnedMemory::release(std::byte* address, std::int64_t /*num_bytes*/) { cudaFreeHost(address); }

void Device::copy(void* out, const void* in, std::int64_t num_bytes) {
  check(cudaMemcpyAsync(out, in, static_cast<std::size_t>(num_bytes), cudaMemcpyDeviceToDevice,
                        compute_with_room().get()),
        "a copy on the device");
}

// The driver takes 1,024 kernels and events.
Stream& Device::compute_with_room(std::int64_t num_pieces) {
  constexpr std::int64_t pieces_of_a_mark = 32;
  const std::int64_t before = num_pieces_ / pieces_of_a_mark;
  num_pieces_ += num_pieces;
  if (memory_.watch_ == nullptr || num_pieces_ / pieces_of_a_mark == before || compute_.is_captured()) return compute_;
  const Event& mark = behind_[num_marks_++ % behind_.size()];
  await(mark);
  compute_.record(mark);
  return compute_;
}

void Device::finish() {
  if (memory_.watch_ == nullptr) return compute_.synchronize();
  while (!compute_.is_idle()) memory_.watch_->look();
}

void Device::await(const Event& event) {
  if (memory_.watch_ == nullptr) return event.synchronize();
  while (!event.is_reached()) memory_.watch_->look();
}

Device::Selected::Selected(int index) { check(cudaSetDevice(index), "the choice of a GPU"); }

namespace {

int attribute_of(int index, cudaDeviceAttr attribute) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, attribute, index), "a property of the GPU");
  return value;
}

cudaDeviceProp properties_of(int index) {
  cudaDeviceProp properties = {};
  check(cudaGetDeviceProperties(&properties, index), "the GPU's properties");
  return properties;
}

}  // namespace

Device::Device(int index)
    : selected_(index),
      index_(index),
      num_multiprocessors_(attribute_of(index, cudaDevAttrMultiProcessorCount)),
      most_shared_bytes_(attribute_of(index, cudaDevAttrMaxSharedMemoryPerBlockOptin)),
      capability_(capability_of_gpu(index)) {}

std::int64_t Device::free_memory_bytes() const {
  std::size_t free_bytes = 0, total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "the device's memory");
  return static_cast<std::int64_t>(free_bytes);
}

std::string name_of_gpu(int index) {
  const cudaDeviceProp properties = properties_of(index);
  return static_cast<const char*>(properties.name);
}

int capability_of_gpu(int index) {
  return 10 * attribute_of(index, cudaDevAttrComputeCapabilityMajor) +
         attribute_of(index, cudaDevAttrComputeCapabilityMinor);
}

std::int64_t memory_bytes_of_gpu(int index) { return static_cast<std::int64_t>(properties_of(index).totalGlobalMem); }

int num_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

}  // namespace echelon::cuda
