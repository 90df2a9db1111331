#include "comm/thread/thread_mesh.h"

#include "comm/solo/solo_comm.h"
#include "comm/thread/thread_comm.h"
#include "comm/thread/thread_operation.h"

#include <algorithm>

namespace echelon {

Comm& ThreadMesh::comm(const Group& group) {
  auto& comm = comms_[group];
  if (comm) return *comm;
  const std::vector<int> ranks = shape().ranks_of(group, rank());
  require(!ranks.empty(), "rank {} is in no group '{}'", rank(), name_of(group));
  std::int64_t& sent = sent_[group];  // also lists a group of one rank, which sends nothing
  const auto place = std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin();
  ThreadGroup* const shared =
      ranks.size() > 1
          ? &world_.group(group, ranks, device_transport_ != nullptr ? device_transport_->exchange_factory() : nullptr)
          : nullptr;
  if (shared != nullptr)
    comm = std::make_unique<ThreadComm>(*this, *shared, sent, static_cast<int>(place), static_cast<int>(ranks.size()));
  else if (device_transport_ != nullptr)
    comm =
        std::make_unique<SoloComm>([this](const Tensor& out, const Tensor& in) { device_transport_->copy(out, in); });
  else
    comm = std::make_unique<SoloComm>();
  return *comm;
}

void ThreadMesh::poll() {
  check_aborted();
  bool worked = false;
  for (ThreadOperation* const operation : under_way_) worked = operation->advance() || worked;
  if (!worked) rest();
}

void ThreadMesh::abort(const std::string& reason) {
  world_.abort(reason);
  wait_until_unused();
}

void ThreadMesh::check_aborted() {
  if (!world_.is_aborted()) return;
  wait_until_unused();
  throw PeerAborted(fmt::format("aborted, because {}", world_.abort_reason()));
}

void ThreadMesh::wait_until_unused() const {
  for (ThreadOperation* const operation : under_way_) operation->exchange().wait_until_unused();
}

void ThreadMesh::rest() {
  constexpr int patience = 16;
  if (++num_idle_polls_ % patience == 0) world_.permits().yield(rank());
}

}  // namespace echelon
