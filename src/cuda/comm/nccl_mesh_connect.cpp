// How a rank's communicators are made: each by an id that one of its ranks draws, or split from one that contains it.
//
// What is split shares buffers with its parent, and NCCL then runs the kernels of both one after the other on every
// device (its src/enqueue.cc, ncclLaunchPrepare: they have one stream). So only groups are split whose operations
// follow each other anyway, in one order on all ranks: the whole mesh, the data axes, the shards; replicas of kv heads
// and all tensor-parallel ranks. Whether a child shares is its parent's to say (src/init.cc, ncclCommInitChildComm).
#include "cuda/comm/nccl_mesh.h"
#include "cuda/comm/nccl_patience.h"
#include "cuda/device/queues.h"
#include "spec/groups.h"
#include "tensor/arena.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
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

// All ranks take the groups in the same order, so no two ranks wait for each other.
void NcclMesh::connect(const std::vector<Group>& groups) {
  for (const Group& group : groups) {
    const auto [known, is_new] = most_blocks_.try_emplace(members_of(group).ranks, most_blocks(group));
    known->second = most_blocks(known->second, most_blocks(group));
  }
  is_connecting_ = true;
  for (const Group& group : groups) {
    if (members_of(group).ranks.size() < 2) continue;
    (void)link(group);
    const std::vector<int> ranks = members_of(group).ranks;
    if (std::find(connected_.begin(), connected_.end(), ranks) == connected_.end()) connected_.push_back(ranks);
    const bool has_transfers =
        group == Group{AxisSet{Axis::pp}} || (is_ring(group) && group.part != Group::Part::block);
    if (has_transfers) connect_neighbours(group);
  }
  is_connecting_ = false;
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
  const auto blocks = most_blocks_.find(members.ranks);
  NcclLink::Place place = {.rank = members.place,
                           .size = static_cast<int>(members.ranks.size()),
                           .ranks = (use == Use::ring ? "around " : "among ") + listed(members.ranks),
                           .most_blocks = blocks == most_blocks_.end() ? most_blocks(group) : blocks->second};
  if (use == Use::ring) place.most_blocks = any_blocks;
  // It is kept also if its ranks do not connect, since threads of NCCL's write to it.
  if (NcclLink* const parent = use == Use::collectives ? parent_link(group) : nullptr) {
    split_.push_back(members.ranks);
    links_[key] = std::make_unique<NcclLink>(*parent, members.ranks.front(), std::move(place));
    settle(*parent, [] { return "connecting ranks"; });
  } else {
    Words id = members.place == 0 ? draw_id() : Words();
    host_.comm(group).broadcast(tensor_of(id), 0).wait();
    links_[key] = std::make_unique<NcclLink>(id_of(id), std::move(place));
  }
  settle(*links_[key], [] { return "connecting ranks"; });
  return *links_[key];
}

NcclLink* NcclMesh::parent_link(const Group& group) {
  const std::optional<Group> parent = parent_of(group);
  if (!is_connecting_ || !parent) return nullptr;
  const auto known = links_.find({members_of(*parent).ranks, Use::collectives});
  return known == links_.end() ? nullptr : known->second.get();
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
  auto& link = transfer_links_[ends] = std::make_unique<NcclLink>(
      id_of(id), NcclLink::Place{.rank = is_source ? 0 : 1,
                                 .size = 2,
                                 .ranks = fmt::format("from rank {} to rank {}", ends.first, ends.second),
                                 .most_blocks = transfer_blocks});
  settle(*link, [] { return "connecting ranks"; });
  return *link;
}

}  // namespace echelon::cuda
