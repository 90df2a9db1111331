#include "cuda/comm/nccl_link.h"

#include "base/error.h"

#include <exception>
#include <utility>

namespace echelon::cuda {

void check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) throw Failure(fmt::format("{}: {} (NCCL; NCCL_DEBUG=INFO tells more)", what, ncclGetErrorString(result)));
}

std::string nccl_version() {
  int version = 0;
  check(ncclGetVersion(&version), "the version of NCCL");
  return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

NcclLink::NcclLink(const ncclUniqueId& id, int rank, int size) { check(ncclCommInitRank(&comm_, size, id, rank), "connecting ranks"); }

NcclLink::~NcclLink() {
  if (std::uncaught_exceptions() > 0) abort();
  if (comm_ == nullptr) return;
  cudaStreamSynchronize(stream_.get());
  ncclCommDestroy(comm_);
}

ncclResult_t NcclLink::look() const {
  ncclResult_t error = ncclSuccess;
  if (comm_ != nullptr && ncclCommGetAsyncError(comm_, &error) != ncclSuccess) error = ncclSystemError;
  return error == ncclInProgress ? ncclSuccess : error;
}

void NcclLink::abort() noexcept {
  if (ncclComm_t comm = std::exchange(comm_, nullptr)) ncclCommAbort(comm);
}

}  // namespace echelon::cuda
