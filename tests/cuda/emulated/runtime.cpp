#include "cuda/emulated/machine.h"

#include <array>
#include <cstdlib>
#include <cstring>

namespace emulated {

Machine& machine() {
  static Machine the_machine;
  return the_machine;
}

namespace {

constexpr std::size_t most_waiting = 512;  // beyond it some work is done, so that memory stays bounded

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

bool can_run(const Stream& stream) {
  if (stream.tasks.empty()) return false;
  const Task& task = stream.tasks.front();
  if (task.graph != nullptr) return task.graph->can_go_on();
  if (task.work.is_due && !task.work.is_due()) return false;
  return task.awaited == nullptr || task.awaited->num_done >= task.number;
}

void perform(const DueWork& piece) {
  if (!piece.work || machine().sticky != cudaSuccess) return;
  try {
    piece.work();
  } catch (const std::exception& error) {
    break_down(error.what());
  }
}

void perform(const Task& task) {
  if (task.record != nullptr) {
    task.record->num_done = std::max(task.record->num_done, task.number);
    task.record->when = std::chrono::steady_clock::now();
  }
  perform(task.work);
}

void remove_if_over(Stream& stream) {
  if (!stream.is_destroyed || !stream.tasks.empty()) return;
  machine().streams.erase(&stream);
  delete &stream;
}

/// One piece of work of a random stream that can go on; false if none can.
bool advance() {
  std::vector<Stream*> candidates;
  for (Stream* stream : machine().streams)
    if (can_run(*stream)) candidates.push_back(stream);
  if (candidates.empty()) return false;
  Stream& stream = *candidates[draw(candidates.size())];
  if (const std::shared_ptr<GraphRun> graph = stream.tasks.front().graph; graph != nullptr && !graph->is_over()) {
    perform(graph->take());
    return true;
  }
  const Task task = std::move(stream.tasks.front());
  stream.tasks.pop_front();
  --machine().num_waiting;
  perform(task);
  remove_if_over(stream);
  return true;
}

template <class F>
cudaError_t run_until(F&& is_reached) {
  while (!is_reached())
    if (!advance()) return result(cudaErrorUnknown);
  return result(cudaSuccess);
}

bool is_within(const std::map<std::byte*, std::size_t>& memory, const void* address) {
  auto* const byte = const_cast<std::byte*>(static_cast<const std::byte*>(address));
  auto after = memory.upper_bound(byte);
  return after != memory.begin() && byte < std::prev(after)->first + std::prev(after)->second;
}

// Of a device's memory; the machine is locked.
std::size_t taken_bytes(int device) {
  std::size_t sum = 0;
  for (const auto& [address, asked] : machine().asked)
    if (asked.device == device) sum += asked.num_bytes;
  return sum;
}

cudaError_t allocate(std::map<std::byte*, std::size_t>& memory, void** address, std::size_t num_bytes) {
  *address = nullptr;
  if (num_bytes == 0) return result(cudaSuccess);
  const std::size_t size = (std::max<std::size_t>(num_bytes, 1) + 255) / 256 * 256;
  auto* const bytes = static_cast<std::byte*>(std::aligned_alloc(256, size));
  if (bytes == nullptr) return result(cudaErrorMemoryAllocation);
  std::memset(bytes, 0xff, size);
  memory[bytes] = num_bytes;
  *address = bytes;
  return result(cudaSuccess);
}

cudaError_t release(std::map<std::byte*, std::size_t>& memory, void* address) {
  if (address == nullptr) return result(cudaSuccess);
  if (memory.erase(static_cast<std::byte*>(address)) == 0) return result(cudaErrorInvalidValue);
  std::free(address);
  return result(cudaSuccess);
}

cudaError_t allocate_on_device(void** address, std::size_t num_bytes) {
  if (taken_bytes(current_device) + num_bytes > machine().memory_bytes) return result(cudaErrorMemoryAllocation);
  const cudaError_t error = allocate(machine().device_memory, address, num_bytes);
  if (error == cudaSuccess && num_bytes > 0) machine().asked[*address] = {num_bytes, current_device};
  return error;
}
cudaError_t release_on_device(void* address) {
  machine().asked.erase(address);
  return release(machine().device_memory, address);
}

/// What calls do that may wait for the whole device; not cudaSuccess, if the chip would wait for ever.
cudaError_t wait_for_all(const char* call) {
  const cudaError_t error = cudaDeviceSynchronize();
  if (error == cudaErrorUnknown)
    std::fprintf(stderr, "emulated device: %s while work waits for what does not come\n", call);
  return error;
}

/// After an error of the device nothing runs there any more, so that its memory may go.
template <class Release>
cudaError_t release_after_all(const char* call, Release&& release) {
  const cudaError_t error = wait_for_all(call);
  if (error != cudaSuccess && machine().sticky == cudaSuccess) return error;
  const cudaError_t released = release();
  return error != cudaSuccess ? error : released;
}

cudaError_t create(Stream** stream) {
  const Lock lock(machine().mutex);
  *stream = new Stream;
  (*stream)->device = current_device;
  machine().streams.insert(*stream);
  return result(cudaSuccess);
}

}  // namespace

cudaError_t result(cudaError_t error) {
  if (error == cudaSuccess) error = machine().sticky;
  if (error != cudaSuccess) last_error = error;
  return error;
}

void break_down(const char* reason) {
  machine().sticky = cudaErrorIllegalAddress;
  machine().sticky_text = reason;
  std::fprintf(stderr, "emulated device: %s\n", reason);
}

void push(Stream& stream, Task task) {
  stream.tasks.push_back(std::move(task));
  ++machine().num_waiting;
  while (machine().num_waiting > most_waiting && advance()) {
  }
}

cudaError_t push(Stream& stream, std::function<DueWork()> begin) {
  if (stream.capture != nullptr) return capture_work(stream, std::move(begin));
  push(stream, Task{.work = begin()});
  return result(cudaSuccess);
}

// The host stands still while the driver's queue is full.
cudaError_t wait_for_room(cudaStream_t stream) {
  constexpr std::size_t most_tasks = 1024;
  const auto has_room = [&] {
    return stream == nullptr || stream->capture != nullptr || stream->tasks.size() < most_tasks;
  };
  {
    const Lock lock(machine().mutex);
    if (has_room()) return cudaSuccess;
  }
  if (wait_until(has_room)) return cudaSuccess;
  std::fprintf(stderr,
               "emulated device: the host stands still, its queue is full of work that waits for what does not come\n");
  return result(cudaErrorUnknown);
}

thread_local long num_enqueued_here = 0;

long num_enqueued_by_this_thread() { return num_enqueued_here; }

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
  if (const cudaError_t error = wait_for_room(stream); error != cudaSuccess) return error;
  const Lock lock(machine().mutex);
  // The default stream waits for all others: nothing of ours may use it.
  if (stream == nullptr) return result(cudaErrorInvalidValue);
  ++machine().activity.num_enqueued;
  ++num_enqueued_here;
  if (machine().num_until_failure > 0 && --machine().num_until_failure == 0)
    work = [] { throw std::runtime_error("a failure that a test asked for"); };
  return push(*stream, [work = std::move(work)] { return DueWork{.work = work}; });
}

cudaError_t enqueue_when(cudaStream_t stream, std::function<DueWork()> begin) {
  const Lock lock(machine().mutex);
  return push(*stream, std::move(begin));
}

bool is_captured(cudaStream_t stream) {
  const Lock lock(machine().mutex);
  return stream->capture != nullptr;
}

std::size_t num_waiting() {
  const Lock lock(machine().mutex);
  return machine().num_waiting;
}

std::unique_lock<std::recursive_mutex> lock() { return std::unique_lock(machine().mutex); }

bool wait_until(const std::function<bool()>& is_reached) {
  constexpr int patience = 5000;
  for (int num_rests = 0; num_rests < patience;) {
    {
      const Lock lock(machine().mutex);
      if (is_reached() || machine().sticky != cudaSuccess) return true;
      if (advance()) {
        num_rests = 0;
        continue;
      }
    }
    ++num_rests;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

void set_waits_for_loads(bool waits) {
  const Lock lock(machine().mutex);
  machine().waits_for_loads = waits;
  machine().loaded.clear();
}

bool is_context_locked(int device) {
  const Lock lock(machine().mutex);
  return machine().num_loading[device] > 0;
}
int device_of(cudaStream_t stream) { return stream->device; }

cudaError_t load(const void* kernel, cudaStream_t stream) {
  const int device = current_device;
  {
    const Lock lock(machine().mutex);
    if (!machine().waits_for_loads || stream->capture != nullptr || !machine().loaded.insert({device, kernel}).second)
      return result(cudaSuccess);
  }
  const auto is_idle = [device] {
    return std::all_of(machine().streams.begin(), machine().streams.end(),
                       [&](const Stream* each) { return each->device != device || each->tasks.empty(); });
  };
  const auto hold = [device](int change) {
    const Lock lock(machine().mutex);
    machine().num_loading[device] += change;
  };
  hold(1);
  const bool is_loaded = wait_until(is_idle);
  hold(-1);
  if (is_loaded) return result(cudaSuccess);
  std::fprintf(stderr, "emulated device: a kernel is loaded while work waits for what does not come\n");
  return result(cudaErrorUnknown);
}

cudaError_t check_launch(const cudaLaunchConfig_t& config, std::size_t allowed) {
  const auto threads = static_cast<std::size_t>(config.blockDim.x) * config.blockDim.y * config.blockDim.z;
  const bool is_legal = threads >= 1 && threads <= 1024 && config.gridDim.x >= 1 && config.gridDim.y >= 1 &&
                        config.gridDim.z >= 1 && config.gridDim.y <= 65535 && config.gridDim.z <= 65535 &&
                        config.gridDim.x <= 0x7fffffffU &&
                        config.dynamicSmemBytes <= std::max<std::size_t>(allowed, 48 * 1024);
  return result(is_legal ? cudaSuccess : cudaErrorInvalidValue);
}

std::size_t allowed_shared_bytes(const void* kernel) {
  const Lock lock(machine().mutex);
  return machine().shared_bytes[kernel];
}

cudaError_t allow_shared_bytes(const void* kernel, int num_bytes) {
  const Lock lock(machine().mutex);
  if (num_bytes < 0 || num_bytes > machine().most_shared_bytes) return result(cudaErrorInvalidValue);
  machine().shared_bytes[kernel] = static_cast<std::size_t>(num_bytes);
  return result(cudaSuccess);
}

void hold_memory(const void* owner, std::size_t num_bytes) {
  const Lock lock(machine().mutex);
  if (num_bytes == 0)
    machine().asked.erase(owner);
  else
    machine().asked[owner] = {num_bytes, current_device};
}

std::int64_t num_allocated_bytes() {
  const Lock lock(machine().mutex);
  std::int64_t sum = 0;
  for (const auto& [address, asked] : machine().asked) sum += static_cast<std::int64_t>(asked.num_bytes);
  return sum;
}
void set_num_devices(int count) { machine().num_devices = count; }
void set_num_islands(int count) { machine().num_islands = count; }
void set_start_error(cudaError_t error) { machine().start_error = error; }
Activity activity() {
  const Lock lock(machine().mutex);
  return machine().activity;
}
void set_memory_bytes(std::int64_t num_bytes) { machine().memory_bytes = static_cast<std::size_t>(num_bytes); }
void set_capability(int capability) { machine().capability = capability; }
void set_num_multiprocessors(int count) { machine().num_multiprocessors = count; }
void set_shared_bytes(int num_bytes) { machine().most_shared_bytes = num_bytes; }
void fail_at(int number) {
  const Lock lock(machine().mutex);
  machine().num_until_failure = number;
  if (number == 0) machine().sticky = cudaSuccess;
}

}  // namespace emulated

using namespace emulated;

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorIllegalState: return "cudaErrorIllegalState";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureMerge: return "cudaErrorStreamCaptureMerge";
    case cudaErrorStreamCaptureUnmatched: return "cudaErrorStreamCaptureUnmatched";
    case cudaErrorStreamCaptureUnjoined: return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureIsolation: return "cudaErrorStreamCaptureIsolation";
    case cudaErrorCapturedEvent: return "cudaErrorCapturedEvent";
    case cudaErrorStreamCaptureWrongThread: return "cudaErrorStreamCaptureWrongThread";
    case cudaErrorUnknown: return "cudaErrorUnknown";
  }
  return "?";
}
const char* cudaGetErrorString(cudaError_t error) {
  if (error == machine().sticky && error != cudaSuccess) return machine().sticky_text.c_str();
  return cudaGetErrorName(error);
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, machine().sticky); }
cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = machine().num_devices;
  if (machine().start_error != cudaSuccess) return result(machine().start_error);
  return machine().num_devices > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= machine().num_devices) return result(cudaErrorInvalidDevice);
  current_device = device;
  return result(cudaSuccess);
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= machine().num_devices) return result(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "Emulated H100");
  properties->totalGlobalMem = machine().memory_bytes;
  properties->multiProcessorCount = 132;
  properties->major = 9;
  properties->sharedMemPerBlockOptin = static_cast<std::size_t>(machine().most_shared_bytes);
  properties->l2CacheSize = 50 << 20;
  return result(cudaSuccess);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int /*device*/) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = machine().num_multiprocessors; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = machine().most_shared_bytes; break;
    case cudaDevAttrComputeCapabilityMajor: *value = machine().capability / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = machine().capability % 10; break;
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int from, int to) {
  const int num_devices = machine().num_devices;
  if (from == to || std::min(from, to) < 0 || std::max(from, to) >= num_devices) return result(cudaErrorInvalidDevice);
  const bool are_joined = from % machine().num_islands == to % machine().num_islands;
  switch (attribute) {
    case cudaDevP2PAttrPerformanceRank: *value = are_joined ? 0 : 1; break;
    case cudaDevP2PAttrAccessSupported: *value = 1; break;  // by way of PCIe
    case cudaDevP2PAttrNativeAtomicSupported: *value = are_joined ? 1 : 0; break;
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* name, int length, int device) {
  std::snprintf(name, static_cast<std::size_t>(length), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  const Lock lock(machine().mutex);
  *total_bytes = machine().memory_bytes;
  *free_bytes = *total_bytes - taken_bytes(current_device);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  const Lock lock(machine().mutex);
  if (const cudaError_t refused = refuse_while_capturing(); refused != cudaSuccess) return refused;
  return run_until([] {
    for (const Stream* stream : machine().streams)
      if (stream->device == current_device && !stream->tasks.empty()) return false;
    return true;
  });
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** address, std::size_t num_bytes) {
  const Lock lock(machine().mutex);
  if (const cudaError_t error = wait_for_all("cudaMalloc"); error != cudaSuccess) return error;
  return allocate_on_device(address, num_bytes);
}
cudaError_t cudaFree(void* address) {
  const Lock lock(machine().mutex);
  if (address == nullptr) return refuse_while_capturing();
  return release_after_all("cudaFree", [&] { return release_on_device(address); });
}
// Their like inside of captures is not played.
cudaError_t cudaMallocAsync(void** address, std::size_t num_bytes, cudaStream_t stream) {
  const Lock lock(machine().mutex);
  if (const cudaError_t refused = refuse_if_captured(stream->capture, cudaErrorStreamCaptureUnsupported);
      refused != cudaSuccess)
    return refused;
  return allocate_on_device(address, num_bytes);
}
cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
  const Lock lock(machine().mutex);
  if (const cudaError_t refused = refuse_if_captured(stream->capture, cudaErrorStreamCaptureUnsupported);
      refused != cudaSuccess)
    return refused;
  if (address == nullptr || !is_within(machine().device_memory, address)) return result(cudaErrorInvalidValue);
  push(*stream, Task{.work = {.work = [address] { release_on_device(address); }}});
  return result(cudaSuccess);
}
cudaError_t cudaMallocHost(void** address, std::size_t num_bytes) {
  const Lock lock(machine().mutex);
  if (const cudaError_t error = wait_for_all("cudaMallocHost"); error != cudaSuccess) return error;
  return allocate(machine().pinned_memory, address, num_bytes);
}
cudaError_t cudaHostAlloc(void** address, std::size_t num_bytes, unsigned /*flags*/) {
  return cudaMallocHost(address, num_bytes);
}
cudaError_t cudaFreeHost(void* address) {
  const Lock lock(machine().mutex);
  if (address == nullptr) return refuse_while_capturing();
  return release_after_all("cudaFreeHost", [&] { return release(machine().pinned_memory, address); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) { return create(stream); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned /*flags*/, int /*priority*/) {
  return create(stream);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock lock(machine().mutex);
  stream->is_destroyed = true;
  remove_if_over(*stream);
  return result(cudaSuccess);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Lock lock(machine().mutex);
  if (const cudaError_t refused = refuse_if_captured(stream->capture, cudaErrorStreamCaptureUnsupported);
      refused != cudaSuccess)
    return refused;
  return run_until([&] { return stream->tasks.empty(); });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Lock lock(machine().mutex);
  if (const cudaError_t refused = refuse_if_captured(stream->capture, cudaErrorStreamCaptureUnsupported);
      refused != cudaSuccess)
    return refused;
  advance();
  return stream->tasks.empty() ? result(cudaSuccess) : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  if (const cudaError_t error = emulated::wait_for_room(stream); error != cudaSuccess) return error;
  const Lock lock(machine().mutex);
  if (stream->capture != nullptr || event->capture != nullptr) return capture_wait(*stream, *event);
  if (event->mark->num_records > 0)
    push(*stream, Task{.work = {}, .awaited = event->mark, .number = event->mark->num_records});
  return result(cudaSuccess);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  *event = new Event;
  return result(cudaSuccess);
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Lock lock(machine().mutex);
  delete event;
  return result(cudaSuccess);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t error = emulated::wait_for_room(stream); error != cudaSuccess) return error;
  const Lock lock(machine().mutex);
  if (stream->capture != nullptr) return capture_record(*stream, *event);
  event->capture.reset();
  push(*stream, Task{.work = {}, .record = event->mark, .number = ++event->mark->num_records});
  return result(cudaSuccess);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Lock lock(machine().mutex);
  if (const cudaError_t refused = refuse_if_captured(event->capture, cudaErrorCapturedEvent); refused != cudaSuccess)
    return refused;
  return run_until([&] { return event->mark->num_done >= event->mark->num_records; });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Lock lock(machine().mutex);
  if (const cudaError_t refused = refuse_if_captured(event->capture, cudaErrorCapturedEvent); refused != cudaSuccess)
    return refused;
  advance();
  return event->mark->num_done >= event->mark->num_records ? result(cudaSuccess) : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const Lock lock(machine().mutex);
  *milliseconds = std::chrono::duration<float, std::milli>(end->mark->when - begin->mark->when).count();
  return result(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void* out, const void* in, std::size_t num_bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (const cudaError_t error = emulated::wait_for_room(stream); error != cudaSuccess) return error;
  const Lock lock(machine().mutex);
  if (num_bytes == 0) return result(cudaSuccess);
  const bool reads_device = is_within(machine().device_memory, in),
             writes_device = is_within(machine().device_memory, out);
  if (kind == cudaMemcpyHostToDevice && (reads_device || !writes_device)) return result(cudaErrorInvalidValue);
  if (kind == cudaMemcpyDeviceToHost && (!reads_device || writes_device)) return result(cudaErrorInvalidValue);
  if (kind == cudaMemcpyDeviceToDevice && (!reads_device || !writes_device)) return result(cudaErrorInvalidValue);
  // Memory that may change once the call has returned.
  const bool is_staged = !reads_device && !is_within(machine().pinned_memory, in);
  const bool is_pageable = !writes_device && !is_within(machine().pinned_memory, out);
  if (stream->capture != nullptr && (is_staged || is_pageable))
    return spoil(*stream->capture, cudaErrorStreamCaptureUnsupported);
  if (!is_staged) {
    const cudaError_t error = enqueue(stream, [=] { std::memmove(out, in, num_bytes); });
    return error == cudaSuccess && is_pageable ? cudaStreamSynchronize(stream) : error;
  }
  const auto* const bytes = static_cast<const std::byte*>(in);
  return enqueue(stream, [out, staged = std::vector<std::byte>(bytes, bytes + num_bytes)] {
    std::memcpy(out, staged.data(), staged.size());
  });
}
cudaError_t cudaMemcpy(void* out, const void* in, std::size_t num_bytes, cudaMemcpyKind /*kind*/) {
  const cudaError_t error = cudaDeviceSynchronize();
  if (error == cudaSuccess && num_bytes > 0) std::memmove(out, in, num_bytes);
  return error;
}
cudaError_t cudaMemcpy2DAsync(void* out, std::size_t out_pitch, const void* in, std::size_t in_pitch, std::size_t width,
                              std::size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  for (std::size_t row = 0; row < height; ++row) {
    const cudaError_t error = cudaMemcpyAsync(static_cast<std::byte*>(out) + row * out_pitch,
                                              static_cast<const std::byte*>(in) + row * in_pitch, width, kind, stream);
    if (error != cudaSuccess) return error;
  }
  return result(cudaSuccess);
}
cudaError_t cudaMemsetAsync(void* out, int value, std::size_t num_bytes, cudaStream_t stream) {
  if (out == nullptr) return result(cudaErrorInvalidValue);
  if (num_bytes == 0) return cudaSuccess;
  return enqueue(stream, [=] { std::memset(out, value, num_bytes); });
}
