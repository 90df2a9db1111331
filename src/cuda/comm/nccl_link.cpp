#include "cuda/comm/nccl_link.h"

#include "base/error.h"

#include <exception>
#include <utility>

namespace echelon::cuda {

void check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess)
    throw Failure(fmt::format("{}: {} (NCCL; NCCL_DEBUG=INFO tells more)", what, ncclGetErrorString(result)));
}

std::string nccl_version() {
  int version = 0;
  check(ncclGetVersion(&version), "the version of NCCL");
  return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

NcclLink::NcclLink(const ncclUniqueId& id, Place place) : place_(std::move(place)) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = ncclCommInitRankConfig(&comm_, place_.size, id, place_.rank, &config);
  if (result != ncclInProgress) check(result, "connecting ranks");
}

NcclLink::~NcclLink() {
  if (std::uncaught_exceptions() > 0 || state() != ncclSuccess) abort();
  if (comm_ == nullptr) return;
  cudaStreamSynchronize(stream_.get());
  ncclCommDestroy(comm_);
}

ncclResult_t NcclLink::state() const {
  ncclResult_t state = ncclSuccess;
  if (comm_ == nullptr) return ncclSuccess;
  return ncclCommGetAsyncError(comm_, &state) == ncclSuccess ? state : ncclSystemError;
}

void NcclLink::abort() noexcept {
  if (ncclComm_t comm = std::exchange(comm_, nullptr)) ncclCommAbort(comm);
}

}  // namespace echelon::cuda
