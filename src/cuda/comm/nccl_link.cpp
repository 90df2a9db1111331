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

namespace {

// Whether a child shares resources is its parent's to say.
ncclConfig_t config_of(const NcclLink::Place& place) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = 1;
  if (place.most_blocks > 0) config.maxCTAs = place.most_blocks;
  return config;
}

}  // namespace

NcclLink::NcclLink(const ncclUniqueId& id, Place place) : place_(std::move(place)) {
  ncclConfig_t config = config_of(place_);
  const ncclResult_t result = nccl().init_rank(&comm_, place_.size, id, place_.rank, &config);
  if (result != ncclInProgress) check(result, "connecting ranks");
}

NcclLink::NcclLink(NcclLink& parent, int color, Place place) : place_(std::move(place)), parent_(&parent) {
  ncclConfig_t config = config_of(place_);
  const ncclResult_t result = nccl().split(parent.get(), color, place_.rank, &comm_, &config);
  if (result != ncclInProgress) check(result, "connecting ranks");
}

NcclLink::~NcclLink() {
  if (!is_finalized_ || state() != ncclSuccess) abort();
  if (comm_ != nullptr) nccl().destroy(comm_);
}

ncclResult_t NcclLink::register_memory(std::byte* base, std::int64_t num_bytes) {
  return nccl().register_window(comm_, base, static_cast<std::size_t>(num_bytes), &window_, NCCL_WIN_COLL_SYMMETRIC);
}

void NcclLink::deregister_memory() noexcept {
  const ncclWindow_t window = std::exchange(window_, nullptr);
  if (comm_ != nullptr && window != nullptr) nccl().deregister_window(comm_, window);
}

ncclResult_t NcclLink::finalize() {
  if (comm_ == nullptr) return ncclSuccess;
  const ncclResult_t result = nccl().finalize(comm_);
  is_finalized_ = result == ncclSuccess || result == ncclInProgress;
  return result;
}

ncclResult_t NcclLink::state() const {
  ncclResult_t state = ncclSuccess;
  if (comm_ == nullptr) return parent_ == nullptr ? ncclSuccess : parent_->state();
  return nccl().get_async_error(comm_, &state) == ncclSuccess ? state : ncclSystemError;
}

void NcclLink::abort() noexcept {
  parent_ = nullptr;
  if (ncclComm_t comm = std::exchange(comm_, nullptr)) nccl().abort(comm);
}

}  // namespace echelon::cuda
