// What a run computes on: processors, or NVIDIA GPUs. The engine asks here for a rank's operations, mesh and memory,
// and knows of no other difference.
#pragma once

#include "backend/work_recorder.h"
#include "comm/mesh.h"
#include "ops/ops.h"
#include "spec/config/run_choices.h"
#include "tensor/memory_space.h"

#include <memory>
#include <string>
#include <string_view>

namespace echelon {

enum class DeviceKind : std::uint8_t { cpu, cuda };
[[nodiscard]] std::string_view name_of(DeviceKind kind);

/// What a rank asks of its device.
struct RankOptions {
  int num_threads = 1;        // of the host, inside one operation
  bool deterministic = true;  // two runs give the same bits, where that costs time
  // Products of float32 may round their operands to TensorFloat-32, where the device is faster at that.
  bool allows_tf32 = false;
  bool needs_float8 = false;                     // products in float8 will be asked for
  CommBackend backend = CommBackend::automatic;  // nccl, or any other for the fastest transport that works
  double timeout_seconds = 300;                  // of one wait
};

/// What a device says of itself.
struct DeviceFacts {
  std::int64_t identity = 0;             // the same for ranks that share a device, and no others
  std::string name;                      // "NVIDIA H100 80GB HBM3"
  std::int64_t memory_bytes = 0;         // 0: not known
  std::int64_t num_multiprocessors = 0;  // 0: it has none
  bool multiplies_float8 = false;
};

/// What one rank computes with. Tensors lie in memory(), and communication in mesh() moves them there.
class RankDevice {
 public:
  virtual ~RankDevice() = default;
  [[nodiscard]] virtual Ops& ops() = 0;
  [[nodiscard]] virtual Mesh& mesh() = 0;
  [[nodiscard]] virtual MemorySpace& memory() = 0;
  /// Of what ops() and mesh() enqueue; null where that cannot be recorded.
  [[nodiscard]] virtual WorkRecorder* recorder() { return nullptr; }
  /// Whether a first run of all that it will compute is to be made before ranks talk (engine/warm_up.h).
  [[nodiscard]] virtual bool wants_warm_up() const { return false; }
  /// "NVIDIA H100 80GB HBM3 (GPU 0), NCCL 2.28.9, ..." for messages at start.
  [[nodiscard]] virtual std::string description() const = 0;
  [[nodiscard]] virtual DeviceFacts facts() const = 0;
  /// What it chose for the operations that it was given, a line each, for messages behind a run.
  [[nodiscard]] virtual std::string choices() const { return {}; }
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

/// automatic is cuda if a GPU and our library for it are found. Throws Error, which names `key` and says why, if the
/// named device is not there.
[[nodiscard]] std::unique_ptr<Backend> open_backend(DeviceChoice device, std::string_view key = "training.device");

}  // namespace echelon
