#include "cuda/comm/nccl_link.h"

#include "base/error.h"

#include <utility>

namespace echelon::cuda {

void check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess)
    throw Failure(fmt::format("{}: {} (NCCL; NCCL_DEBUG=INFO tells more)", what, nccl().error_string(result)));
}

std::string nccl_version() {
  int version = 0;
  check(nccl().get_version(&version), "the version of NCCL");
  return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

NcclLink::NcclLink(const ncclUniqueId& id, Place place) : place_(std::move(place)) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = nccl().init_rank(&comm_, place_.size, id, place_.rank, &config);
  if (result != ncclInProgress) check(result, "connecting ranks");
}

NcclLink::~NcclLink() {
  if (!is_finalized_ || state() != ncclSuccess) abort();
  if (comm_ != nullptr) nccl().destroy(comm_);
}

ncclResult_t NcclLink::finalize() {
  if (comm_ == nullptr) return ncclSuccess;
  const ncclResult_t result = nccl().finalize(comm_);
  is_finalized_ = result == ncclSuccess || result == ncclInProgress;
  return result;
}

ncclResult_t NcclLink::state() const {
  ncclResult_t state = ncclSuccess;
  if (comm_ == nullptr) return ncclSuccess;
  return nccl().get_async_error(comm_, &state) == ncclSuccess ? state : ncclSystemError;
}

void NcclLink::abort() noexcept {
  if (ncclComm_t comm = std::exchange(comm_, nullptr)) nccl().abort(comm);
}

}  // namespace echelon::cuda
