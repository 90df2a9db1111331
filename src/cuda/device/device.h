// One rank's GPU: the memory that its arena is taken from, the lane on which its operations run, and another for
// communication.
#pragma once

#include "cuda/device/stream.h"
#include "tensor/memory_space.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace echelon::cuda {

/// Watches other ranks while the host waits for the device, whose work may wait for them.
class DeviceWatch {
 public:
  virtual ~DeviceWatch() = default;
  /// Called repeatedly. Throws if the event that the device waits for will not occur.
  virtual void look() = 0;
  /// Makes the device wait for no other rank: this rank unwinds.
  virtual void give_up() noexcept = 0;
};

class DeviceMemory final : public MemorySpace {
 public:
  /// Null for no bytes.
  [[nodiscard]] std::byte* allocate(std::int64_t num_bytes) override;
  /// Waits until the device is done with it.
  void release(std::byte* address, std::int64_t num_bytes) override;

 private:
  friend class Device;
  DeviceWatch* watch_ = nullptr;
};

/// Memory of the host that the GPU reads and writes without a copy in between.
class PinnedMemory final : public MemorySpace {
 public:
  [[nodiscard]] std::byte* allocate(std::int64_t num_bytes) override;
  void release(std::byte* address, std::int64_t num_bytes) override;
};

/// 0 where there is no driver or no GPU.
[[nodiscard]] int num_devices();

/// Of the GPU with this index, without starting anything there.
[[nodiscard]] std::string name_of_gpu(int index);
[[nodiscard]] int capability_of_gpu(int index);
inline constexpr int least_float8_capability = 89;
[[nodiscard]] std::int64_t memory_bytes_of_gpu(int index);

/// Several ranks may have the same GPU. Used by the rank's own thread, of which it becomes the current device.
class Device {
 public:
  explicit Device(int index);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] int num_multiprocessors() const { return num_multiprocessors_; }
  /// That a block may have where a kernel asks for it: 227 KiB of an H100, 99 KiB of capabilities 8.6, 8.9 and 12.x.
  [[nodiscard]] std::int64_t most_shared_bytes() const { return most_shared_bytes_; }
  /// 80, 90, 100: the major and minor version of what it can do.
  [[nodiscard]] int capability() const { return capability_; }
  [[nodiscard]] std::string name() const { return name_of_gpu(index_); }
  /// Of no process and no library.
  [[nodiscard]] std::int64_t free_memory_bytes() const;
  [[nodiscard]] Stream& compute() { return compute_; }
  /// The same for more pieces of work, each of a few kernels and events. With a watch it first waits while some hundred
  /// pieces are pending: the driver's queue is bounded, and a host that blocks in the driver cannot watch.
  [[nodiscard]] Stream& compute_with_room(std::int64_t num_pieces = 1);
  [[nodiscard]] Stream& communication() { return communication_; }
  [[nodiscard]] DeviceMemory& memory() { return memory_; }
  [[nodiscard]] PinnedMemory& pinned_memory() { return pinned_memory_; }

  /// Zeros; waits for them.
  static void clear(void* x, std::int64_t num_bytes);
  /// Enqueues out = in, both on the device, on the compute stream.
  void copy(void* out, const void* in, std::int64_t num_bytes);
  /// Blocks the host until the compute stream has done all that it was given. Throws Failure if any of it failed, or
  /// what the watch throws.
  void finish();
  /// The same until the last record of an event is reached.
  void await(const Event& event);
  /// From now on it is called whenever the host waits; null: nothing is.
  void watch(DeviceWatch* watch) { memory_.watch_ = watch; }

 private:
  struct Selected {
    explicit Selected(int index);  // makes the device current before the streams are made
  };
  Selected selected_;
  int index_;
  int num_multiprocessors_ = 0;
  std::int64_t most_shared_bytes_ = 0;
  int capability_ = 0;
  DeviceMemory memory_;
  PinnedMemory pinned_memory_;
  Stream compute_;
  std::array<Event, 4> behind_;  // marks on the compute stream, used in turn
  std::size_t num_marks_ = 0;
  std::int64_t num_pieces_ = 0;
  Stream communication_{Stream::Priority::high};
};

}  // namespace echelon::cuda
