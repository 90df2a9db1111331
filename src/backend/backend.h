// What a run computes on: CPUs or NVIDIA GPUs. The engine gets a rank's operations, mesh and memory here, and sees no
// other difference.
#pragma once

#include "backend/work_recorder.h"
#include "comm/mesh.h"
#include "ops/cpu/gemm_choice.h"
#include "ops/ops.h"
#include "spec/config/run_choices.h"
#include "tensor/memory_space.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

enum class DeviceKind : std::uint8_t { cpu, cuda };
[[nodiscard]] std::string_view name_of(DeviceKind kind);

/// What a rank requires of its device.
struct RankOptions {
  int num_threads = 1;        // of the host, inside one operation
  bool deterministic = true;  // two runs give the same bits, where that costs time
  // float32 matmuls may round their operands to TensorFloat-32 where that is faster.
  bool allows_tf32 = false;
  bool needs_float8 = false;  // float8 matmuls will be used
  AttentionKernels attention = AttentionKernels::automatic;
  CommBackend backend = CommBackend::automatic;  // nccl, or any other for the fastest transport that works
  double timeout_seconds = 300;                  // of one wait
  ProductRequest products = {};                  // on CPUs
};

/// The properties of a device.
struct DeviceFacts {
  std::int64_t identity = 0;             // the same for ranks that share a device, and no others
  std::string name;                      // "NVIDIA H100 80GB HBM3"
  std::int64_t memory_bytes = 0;         // 0: not known
  std::int64_t num_multiprocessors = 0;  // 0: it has none
  bool multiplies_float8 = false;
};

/// What one rank computes with. Its tensors are in memory(), and mesh() communicates them.
class RankDevice {
 public:
  virtual ~RankDevice() = default;
  [[nodiscard]] virtual Ops& ops() = 0;
  [[nodiscard]] virtual Mesh& mesh() = 0;
  [[nodiscard]] virtual MemorySpace& memory() = 0;
  /// Of the host, for what is copied from memory() while it computes.
  [[nodiscard]] virtual MemorySpace& pinned_memory() { return host_memory(); }
  /// Records what ops() and mesh() enqueue; null where that cannot be recorded.
  [[nodiscard]] virtual WorkRecorder* recorder() { return nullptr; }
  /// Whether a first run of all that it will compute is to be made before ranks talk (engine/warm_up.h).
  [[nodiscard]] virtual bool needs_warm_up() const { return false; }
  /// "NVIDIA H100 80GB HBM3 (GPU 0), NCCL 2.28.9, ..." for messages at start.
  [[nodiscard]] virtual std::string description() const = 0;
  [[nodiscard]] virtual DeviceFacts facts() const = 0;
  /// That a rank's arena may have, together with those of ranks that share the device; 0: not known.
  [[nodiscard]] virtual std::int64_t free_memory_bytes() const { return 0; }
  /// The kernels that it chose for the operations so far, one line each, for messages after a run.
  [[nodiscard]] virtual std::string choices() const { return {}; }
  /// By which kernels it multiplies, the same on all ranks; empty where the device has no choice. A run that resumes
  /// asks for them (RankOptions::products).
  [[nodiscard]] virtual ProductNames products() const { return {}; }
  /// All ranks of a run call it once, with what memory() gave for its arena, before its first step. `plan` is equal on
  /// ranks whose buffers have equal offsets. The arena must be released before the device.
  virtual void use_arena(std::byte* /*base*/, std::int64_t /*num_bytes*/, std::uint64_t /*plan*/) {}
  /// Sentences about what was asked for and is not done.
  [[nodiscard]] virtual std::vector<std::string> notes() const { return {}; }
};

class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual DeviceKind kind() const = 0;
  /// On this host, each for a rank of its own.
  [[nodiscard]] virtual int num_devices() const = 0;
  /// Called by every rank on its own thread, a collective over the host's mesh, which must outlive what it returns.
  [[nodiscard]] virtual std::unique_ptr<RankDevice> open(Mesh& host, const RankOptions& options) = 0;
};

/// automatic is cuda if a GPU and our library for it are found. Throws Error, which names `key` and the reason, if the
/// machine does not have that device.
[[nodiscard]] std::unique_ptr<Backend> open_backend(DeviceChoice device, std::string_view key = "training.device");

}  // namespace echelon
