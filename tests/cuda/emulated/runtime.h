// CUDA's runtime, as far as Echelon calls it: devices, memory, streams, events, launches and graphs, on the host.
#pragma once

#include "cuda/emulated/execution.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>
#include <utility>

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorIllegalState = 401,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureMerge = 902,
  cudaErrorStreamCaptureUnmatched = 903,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorCapturedEvent = 907,
  cudaErrorStreamCaptureWrongThread = 908,
  cudaErrorUnknown = 999
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed
};
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone,
  cudaStreamCaptureStatusActive,
  cudaStreamCaptureStatusInvalidated
};
enum cudaDeviceP2PAttr {
  cudaDevP2PAttrPerformanceRank = 1,
  cudaDevP2PAttrAccessSupported = 2,
  cudaDevP2PAttrNativeAtomicSupported = 3
};
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76
};
constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2, cudaEventDefault = 0,
                   cudaHostAllocDefault = 0;

namespace emulated {
struct Stream;
struct Event;
struct Graph;
}  // namespace emulated
using cudaStream_t = emulated::Stream*;
using cudaEvent_t = emulated::Event*;
using cudaGraph_t = emulated::Graph*;
using cudaGraphExec_t = emulated::Graph*;

struct cudaDeviceProp {
  char name[256];
  std::size_t totalGlobalMem;
  int multiProcessorCount;
  int major, minor;
  std::size_t sharedMemPerBlockOptin;
  int l2CacheSize;
};

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int from, int to);
cudaError_t cudaDeviceGetPCIBusId(char* name, int length, int device);
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);

cudaError_t cudaMalloc(void** address, std::size_t num_bytes);
cudaError_t cudaFree(void* address);
cudaError_t cudaMallocAsync(void** address, std::size_t num_bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void* address, cudaStream_t stream);
cudaError_t cudaHostAlloc(void** address, std::size_t num_bytes, unsigned flags);
cudaError_t cudaMallocHost(void** address, std::size_t num_bytes);
cudaError_t cudaFreeHost(void* address);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

cudaError_t cudaMemcpyAsync(void* out, const void* in, std::size_t num_bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemcpy(void* out, const void* in, std::size_t num_bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpy2DAsync(void* out, std::size_t out_pitch, const void* in, std::size_t in_pitch, std::size_t width,
                              std::size_t height, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* out, int value, std::size_t num_bytes, cudaStream_t stream);

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* instance, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t instance, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t instance);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);

enum cudaLaunchAttributeID { cudaLaunchAttributeClusterDimension = 4 };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

namespace emulated {

/// A library takes memory of the current device, and gives it back: none for `num_bytes` = 0.
void hold_memory(const void* owner, std::size_t num_bytes);
/// Returns when the stream's queue has room for more, as calls that enqueue kernels, copies and events do; not
/// cudaSuccess, if it would stay full.
cudaError_t wait_for_room(cudaStream_t stream);
/// Enqueues work on a stream, or notes it down while the stream is captured.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);
/// Work that may begin when is_due() says so, which is asked when the stream has come to it; whenever, if it is empty.
struct DueWork {
  std::function<bool()> is_due = {};
  std::function<void()> work = {};
};
/// The same for what `begin` returns, which is called when it is enqueued, or whenever the graph that it was captured
/// in is launched.
cudaError_t enqueue_when(cudaStream_t stream, std::function<DueWork()> begin);
[[nodiscard]] bool is_captured(cudaStream_t stream);
/// Pieces of work that no stream has come to.
[[nodiscard]] std::size_t num_waiting();
/// Nothing runs on any stream while it is held.
[[nodiscard]] std::unique_lock<std::recursive_mutex> lock();
/// Lets the devices work, and other threads give them work, until is_reached() or something on a device has failed.
/// False if nothing moves for a long time.
[[nodiscard]] bool wait_until(const std::function<bool()>& is_reached);
/// Whether from now on a kernel that is launched on a device for the first time waits for all that the device has, as
/// CUDA, which loads it then, may (it does not).
void set_waits_for_loads(bool waits);
/// Whether such a load, or another holder of the lock of the device's context, is under way: threads of NCCL's, which
/// need that lock, stand still.
[[nodiscard]] bool is_context_locked(int device);
[[nodiscard]] int device_of(cudaStream_t stream);
/// Of a launch.
cudaError_t load(const void* kernel, cudaStream_t stream);
/// The launch limits of the chip that is played: cudaErrorInvalidValue if `config` breaks one.
cudaError_t check_launch(const cudaLaunchConfig_t& config, std::size_t allowed_shared_bytes);
/// What cudaFuncSetAttribute allowed the kernel, and allows it from now on: cudaErrorInvalidValue if no block may have
/// that.
[[nodiscard]] std::size_t allowed_shared_bytes(const void* kernel);
cudaError_t allow_shared_bytes(const void* kernel, int num_bytes);

/// How many devices there are from now on. Streams belong to the device that was set when they were made.
void set_num_devices(int count);
/// GPUs a and b are joined by NVLink where a and b leave the same remainder divided by this (1).
void set_num_islands(int count);
/// The memory of each device from now on (80 GiB). More than is there nobody gets.
void set_memory_bytes(std::int64_t num_bytes);
/// Bytes of device memory that are allocated, as they were asked for.
std::int64_t num_allocated_bytes();
/// What CUDA says from now on when it is asked how many devices there are, and what they can do (90).
void set_start_error(cudaError_t error);
void set_capability(int capability);
/// Few (4), so that persistent kernels loop.
void set_num_multiprocessors(int count);
/// The shared memory that a block may have if its kernel asks for it (227 KiB).
void set_shared_bytes(int num_bytes);
/// What was done so far.
struct Activity {
  long num_enqueued = 0;  // kernels, copies and the like, one by one, captured or not
  long num_captures = 0, num_graph_launches = 0;
};
Activity activity();
long num_enqueued_by_this_thread();
/// Read and written so far by kernels, several values at a time, and by matmuls.
inline std::atomic<std::int64_t> num_bytes_moved = 0;
inline void note_access(std::int64_t num_bytes) { num_bytes_moved.fetch_add(num_bytes, std::memory_order_relaxed); }
/// Pairs (query, key) of all heads so far, by the kernel of attention (cuda/device/pair_counter.h): forward, or
/// gradients of queries or of keys.
enum class PairsOf : int { forward, queries, keys };
inline std::array<std::atomic<std::int64_t>, 3> num_pairs = {};
inline void note_pairs(PairsOf kernel, std::int64_t count) {
  num_pairs[static_cast<std::size_t>(kernel)].fetch_add(count, std::memory_order_relaxed);
}
/// From now on the n-th enqueued piece of work fails, as an error of the device would; 0: none.
void fail_at(int number);

}  // namespace emulated

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const cudaError_t error =
      emulated::check_launch(*config, emulated::allowed_shared_bytes(reinterpret_cast<const void*>(kernel)));
  if (error != cudaSuccess) return error;
  if (const cudaError_t loaded = emulated::load(reinterpret_cast<const void*>(kernel), config->stream);
      loaded != cudaSuccess)
    return loaded;
  const emulated::Grid grid = {config->gridDim, config->blockDim, config->dynamicSmemBytes};
  // Arguments are copied at the launch, as CUDA does.
  return emulated::enqueue(config->stream,
                           [grid, kernel, copies = std::tuple<Parameters...>(std::forward<Arguments>(arguments)...)] {
                             emulated::run(grid, [&] { std::apply(kernel, copies); });
                           });
}
template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  return emulated::allow_shared_bytes(reinterpret_cast<const void*>(kernel), value);
}
