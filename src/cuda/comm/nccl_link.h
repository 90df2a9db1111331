// One communicator of NCCL and the stream on which its operations run. Ranks that start operations of several communicators in different orders must not wait
// for each other, so every communicator has a stream of its own.
#pragma once

#include "comm/mesh.h"
#include "cuda/device/stream.h"

#include <nccl.h>

#include <string>

namespace echelon::cuda {

/// Throws Failure with what NCCL says, unless it is a success.
void check(ncclResult_t result, const char* what);
/// "NCCL 2.28.9"
[[nodiscard]] std::string nccl_version();

class NcclLink {
 public:
  /// Connects `size` ranks, of which this is `rank`; all of them come here at once. `id`: what the first of them drew.
  NcclLink(const ncclUniqueId& id, int rank, int size);
  /// What was enqueued is finished first, unless it was aborted.
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  [[nodiscard]] ncclComm_t get() const { return comm_; }
  [[nodiscard]] Stream& stream() { return stream_; }
  /// An error since the last look, of any rank that NCCL heard of; ncclSuccess if all is well.
  [[nodiscard]] ncclResult_t look() const;
  /// Ends what is under way, on the device too. Nothing can be started afterwards.
  void abort() noexcept;

 private:
  Stream stream_{Stream::Priority::high};
  ncclComm_t comm_ = nullptr;
};

}  // namespace echelon::cuda
