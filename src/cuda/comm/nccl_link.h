// One communicator of NCCL and the stream on which its operations run. Ranks that start operations of several
// communicators in different orders must not wait for each other, so every communicator has a stream of its own.
//
// It is a nonblocking one: ranks connect, and the first operation of a kind connects them once more, in threads of
// NCCL's own. A blocking call would wait there for a rank that may have failed, and nothing could end that wait. Such a
// thread is what an operation costs on the host.
#pragma once

#include "comm/mesh.h"
#include "cuda/device/stream.h"

#include "cuda/comm/nccl_library.h"

#include <string>

namespace echelon::cuda {

/// Throws Failure with what NCCL says, unless it is a success.
void check(ncclResult_t result, const char* what);
/// "NCCL 2.28.9"
[[nodiscard]] std::string nccl_version();

class NcclLink {
 public:
  struct Place {
    int rank = 0, size = 0;
    std::string ranks;    // "among ranks 0, 1"
    int most_blocks = 0;  // of a kernel, and so channels with buffers; 0: as NCCL likes
  };
  /// Starts to connect; all ranks call it at once. `id`: drawn by the first of them. No operation may start before
  /// state() is ncclSuccess.
  NcclLink(const ncclUniqueId& id, Place place);
  /// The same for some ranks of `parent`, of which all ranks call it at once. `color`: equal among those that get
  /// connected. The two share buffers, and their kernels take turns on a device, in the order in which they are
  /// launched. The parent must be connected, and again before this one is asked for anything but its state; it must
  /// outlive this one.
  NcclLink(NcclLink& parent, int color, Place place);
  /// Aborts, unless finalize() has ended.
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  [[nodiscard]] ncclComm_t get() const { return comm_; }
  [[nodiscard]] Stream& stream() { return stream_; }
  /// ncclInProgress until the ranks are connected, and from the start of an operation until it is on the stream; else
  /// ncclSuccess, or an error of any rank that NCCL heard of.
  [[nodiscard]] ncclResult_t state() const;
  [[nodiscard]] const std::string& ranks() const { return place_.ranks; }
  /// Starts to register memory that NCCL allocated, for collectives among ranks that do so at once, with as many bytes
  /// and equal offsets in all their operations. state() is ncclInProgress until it is.
  ncclResult_t register_memory(std::byte* base, std::int64_t num_bytes);
  /// Whether it came to that: NCCL registers nothing where peers' memory is not within reach.
  [[nodiscard]] bool is_registered() const { return window_ != nullptr; }
  /// The communicator has nothing to do.
  void deregister_memory() noexcept;
  /// Starts to end the communicator; no operation can start afterwards. All ranks call it. state() is ncclInProgress
  /// until the resources can be freed without waiting for a peer.
  ncclResult_t finalize();
  /// Aborts operations in progress, on the device too. No operation can start afterwards.
  void abort() noexcept;

 private:
  Place place_;
  NcclLink* parent_ = nullptr;  // until it has been split
  Stream stream_{Stream::Priority::high};
  ncclComm_t comm_ = nullptr;
  ncclWindow_t window_ = nullptr;
  bool is_finalized_ = false;
};

}  // namespace echelon::cuda
