#include "cuda/comm/nccl_mesh.h"

#include "comm/solo/solo_comm.h"
#include "cuda/comm/nccl_comm.h"

#include <algorithm>
#include <utility>

namespace echelon::cuda {

NcclMesh::NcclMesh(Mesh& host, Device& device, double timeout_seconds)
    : Mesh(host.shape(), host.rank()), host_(host), device_(device), timeout_seconds_(timeout_seconds) {
  device_.watch(this);
}

NcclMesh::Members NcclMesh::members_of(const Group& group) const {
  Members members = {.ranks = shape().ranks_of(group, rank())};
  members.place =
      static_cast<int>(std::find(members.ranks.begin(), members.ranks.end(), rank()) - members.ranks.begin());
  return members;
}

Comm& NcclMesh::comm(const Group& group) {
  auto& comm = comms_[group];
  if (comm) return *comm;
  const Members members = members_of(group);
  require(!members.ranks.empty(), "rank {} is in no group '{}'", rank(), name_of(group));
  std::int64_t& sent = sent_[group];
  if (members.ranks.size() > 1 || shape().num_ranks() == 1)  // a rank alone asked for NCCL
    comm = std::make_unique<NcclComm>(*this, group, sent, members.place, static_cast<int>(members.ranks.size()));
  else
    comm = std::make_unique<SoloComm>(
        [this](const Tensor& out, const Tensor& in) { device_.copy(out.data, in.data, in.num_bytes()); });
  return *comm;
}

void NcclMesh::begin_recording() {
  is_recording_ = true;
  last_recorded_ = nullptr;
  sent_before_ = sent_;
}

void NcclMesh::end_recording() {
  cancel_recording();
  recorded_.clear();  // captured events cannot be queried until they are recorded again
}

// What was recorded has not been sent.
void NcclMesh::cancel_recording() noexcept {
  is_recording_ = false;
  for (auto& [group, bytes] : sent_) {
    sent_by_replay_[group] = bytes - sent_before_[group];
    bytes = sent_before_[group];
  }
}

void NcclMesh::replayed() {
  for (const auto& [group, bytes] : sent_by_replay_) sent_[group] += bytes;
  Flight& flight = take_off({}, {});
  flight.is_replay = true;
  flight.is_waited_for = true;
  device_.compute().record(flight.done);
}

void NcclMesh::retire_completed() {
  const auto is_over = [](const std::unique_ptr<Flight>& flight) {
    return flight->is_waited_for && flight->done.is_reached();
  };
  for (auto& flight : flights_)
    if (is_over(flight)) reusable_.push_back(std::move(flight));
  std::erase(flights_, nullptr);
}

void NcclMesh::poll() {
  try {
    host_.poll();
    require_no_failure();
  } catch (...) {
    give_up();
    throw;
  }
}

// The check costs a few microseconds, so it is done only sometimes.
void NcclMesh::require_no_failure() {
  const Clock::time_point now = Clock::now();
  if (now - last_look_ < std::chrono::milliseconds(1)) return;
  last_look_ = now;
  for (const auto& [ranks, link] : links_) require_well(*link);
  for (const auto& [ranks, link] : transfer_links_) require_well(*link);
  if (is_recording_) return;  // no event may be queried
  retire_completed();
  const auto under_way =
      std::find_if(flights_.begin(), flights_.end(), [](const auto& flight) { return !flight->done.is_reached(); });
  const Flight* const oldest = under_way == flights_.end() ? nullptr : under_way->get();
  if (oldest != oldest_) {
    oldest_ = oldest;
    oldest_since_ = now;
  }
  if (oldest != nullptr && std::chrono::duration<double>(now - oldest_since_).count() > timeout_seconds_)
    fail(fmt::format("not done after {} s (comm.timeout_seconds)", timeout_seconds_));
}

void NcclMesh::require_well(const NcclLink& link) {
  const ncclResult_t state = link.state();
  if (state != ncclSuccess && state != ncclInProgress)
    fail(fmt::format("NCCL {}: {} (NCCL_DEBUG=INFO tells more)", link.ranks(), nccl().error_string(state)));
}

std::string NcclMesh::describe(const Flight& flight) const {
  if (flight.is_replay) return "a step that was recorded";
  return fmt::format("{} in group {} ({})", to_string(flight.signature), name_of(flight.group),
                     listed(members_of(flight.group).ranks));
}

void NcclMesh::fail(const std::string& sentence) {
  throw Failure(oldest_ != nullptr ? fmt::format("{}; rank {} waits for {}", sentence, rank(), describe(*oldest_))
                                   : sentence);
}

void NcclMesh::hold_graphs(std::function<void()> drop) { drop_graphs_ = std::move(drop); }

// The peers first: work on their devices may wait for this rank.
void NcclMesh::abort(const std::string& reason) {
  host_.abort(reason);
  give_up();
}

}  // namespace echelon::cuda
