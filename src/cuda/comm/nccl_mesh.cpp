#include "cuda/comm/nccl_mesh.h"

#include "comm/solo/solo_comm.h"
#include "cuda/comm/nccl_comm.h"
#include "cuda/comm/nccl_patience.h"
#include "cuda/device/queues.h"
#include "tensor/arena.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace echelon::cuda {
namespace {

using Words = std::array<std::int32_t, NCCL_UNIQUE_ID_BYTES / sizeof(std::int32_t)>;

Tensor tensor_of(Words& words) { return {words.data(), DType::int32, {static_cast<std::int64_t>(words.size())}}; }

Words draw_id() {
  ncclUniqueId id = {};
  check(nccl().get_unique_id(&id), "an id for ranks to connect");
  Words words;
  std::memcpy(words.data(), &id, sizeof id);
  return words;
}

bool is_ring(const Group& group) { return group.axes == AxisSet{Axis::cp}; }

ncclUniqueId id_of(const Words& words) {
  ncclUniqueId id = {};
  std::memcpy(&id, words.data(), sizeof id);
  return id;
}

}  // namespace

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
  if (members.ranks.size() > 1)
    comm = std::make_unique<NcclComm>(*this, group, sent, members.place, static_cast<int>(members.ranks.size()));
  else
    comm = std::make_unique<SoloComm>(
        [this](const Tensor& out, const Tensor& in) { device_.copy(out.data, in.data, in.num_bytes()); });
  return *comm;
}

// All ranks take the groups in the same order, so no two ranks wait for each other.
void NcclMesh::connect(const std::vector<Group>& groups) {
  for (const Group& group : groups) {
    if (members_of(group).ranks.size() < 2) continue;
    (void)link(group);
    const bool has_transfers =
        group == Group{AxisSet{Axis::pp}} || (is_ring(group) && group.part != Group::Part::block);
    if (has_transfers) connect_neighbours(group);
  }
  constexpr int num_own_streams = 2;  // of the device
  require_queues(num_own_streams + static_cast<int>(links_.size() + transfer_links_.size()));
}

// Likewise: first all pairs of the ring that start at an even place, then those that start at an odd one.
void NcclMesh::connect_neighbours(const Group& group) {
  const Members members = members_of(group);
  const int n = static_cast<int>(members.ranks.size());
  if (n < 2) return;
  const Arena memory(2 * alignment_bytes, device_.memory());
  std::byte* const byte = memory.tensor(0, DType::int32, {1}).data;
  if (is_ring(group)) return try_ring(group, byte);
  for (const int parity : {0, 1})
    for (int first = parity; first < n; first += 2) {
      const int second = (first + 1) % n;
      if (first != members.place && second != members.place) continue;
      try_transfer(pair_link(group, first, second), first == members.place, byte);
      try_transfer(pair_link(group, second, first), second == members.place, byte);
    }
}

void NcclMesh::try_ring(const Group& group, std::byte* byte) {
  const Members members = members_of(group);
  const int n = static_cast<int>(members.ranks.size()), next = (members.place + 1) % n,
            before = (members.place + n - 1) % n;
  NcclLink& ring = link(group, Use::ring);
  nccl().group_start();
  ncclResult_t result = nccl().send(byte, 1, ncclUint8, next, ring.get(), ring.stream().get());
  if (result == ncclSuccess)
    result = nccl().receive(byte + alignment_bytes, 1, ncclUint8, before, ring.get(), ring.stream().get());
  const ncclResult_t end = nccl().group_end();
  if (result == ncclSuccess) result = end;
  if (result != ncclInProgress) check(result, "first transfers");
  await_transfer(ring);
}

// A first transfer connects the two once more, for which both hosts wait: ranks that all started with a receive would
// deadlock.
void NcclMesh::try_transfer(NcclLink& link, bool is_source, std::byte* byte) {
  const ncclResult_t result = is_source ? nccl().send(byte, 1, ncclUint8, 1, link.get(), link.stream().get())
                                        : nccl().receive(byte, 1, ncclUint8, 0, link.get(), link.stream().get());
  if (result != ncclInProgress) check(result, "a first transfer");
  await_transfer(link);
}

void NcclMesh::await_transfer(NcclLink& link) {
  settle(link, [] { return "a first transfer"; });
  const Clock::time_point begin = Clock::now();
  for (; !link.stream().is_idle(); poll())
    if (seconds_since(begin) > timeout_seconds_)
      fail(fmt::format("a first transfer {} is not done after {} s (comm.timeout_seconds)", link.ranks(),
                       timeout_seconds_));
}

NcclLink& NcclMesh::link(const Group& group, Use use) {
  const Members members = members_of(group);
  const std::pair key(members.ranks, use);
  if (const auto known = links_.find(key); known != links_.end()) return *known->second;
  Words id = members.place == 0 ? draw_id() : Words();
  host_.comm(group).broadcast(tensor_of(id), 0).wait();
  auto link = connected(id_of(id), {.rank = members.place,
                                    .size = static_cast<int>(members.ranks.size()),
                                    .ranks = (use == Use::ring ? "around " : "among ") + listed(members.ranks)});
  return *(links_[key] = std::move(link));
}

NcclMesh::TransferLink NcclMesh::transfer_link(const Group& group, int source, int destination) {
  if (is_ring(group)) return {link(group, Use::ring), source, destination};
  return {pair_link(group, source, destination), 0, 1};
}

NcclLink& NcclMesh::pair_link(const Group& group, int source, int destination) {
  const Members members = members_of(group);
  const std::pair ends = {members.ranks[static_cast<std::size_t>(source)],
                          members.ranks[static_cast<std::size_t>(destination)]};
  if (const auto known = transfer_links_.find(ends); known != transfer_links_.end()) return *known->second;
  const bool is_source = members.place == source;
  Words id = is_source ? draw_id() : Words();
  Comm& host = host_.comm(group);
  (is_source ? host.send(tensor_of(id), destination) : host.receive(tensor_of(id), source)).wait();
  auto link = connected(
      id_of(id),
      {.rank = is_source ? 0 : 1, .size = 2, .ranks = fmt::format("from rank {} to rank {}", ends.first, ends.second)});
  return *(transfer_links_[ends] = std::move(link));
}

std::unique_ptr<NcclLink> NcclMesh::connected(const ncclUniqueId& id, NcclLink::Place place) {
  auto link = std::make_unique<NcclLink>(id, std::move(place));
  settle(*link, [] { return "connecting ranks"; });
  return link;
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
