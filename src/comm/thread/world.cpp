#include "comm/thread/world.h"

#include "machine/cpus.h"

#include <algorithm>
#include <climits>

namespace echelon {
namespace {

int permits_of(const ThreadOptions& options) { return options.compute_permits > 0 ? options.compute_permits : num_usable_cores(); }

}  // namespace

ThreadGroup::ThreadGroup(ThreadWorld& world, std::string name, std::vector<int> ranks)
    : world_(world), name_(std::move(name)), ranks_(std::move(ranks)), collectives_(world_, name_, ranks_) {}

Rendezvous& ThreadGroup::transfers(int source, int destination) {
  const std::lock_guard lock(mutex_);
  auto& transfers = transfers_[{source, destination}];
  if (!transfers) {
    const std::vector<int> pair = {ranks_[static_cast<std::size_t>(source)], ranks_[static_cast<std::size_t>(destination)]};
    transfers = std::make_unique<Rendezvous>(world_, name_, pair);
  }
  return *transfers;
}

ThreadWorld::ThreadWorld(const MeshShape& shape, const ThreadOptions& options)
    : shape_(shape),
      timeout_seconds_(options.timeout_seconds),
      num_permits_(permits_of(options)),
      permits_(num_permits_, shape.num_ranks()),
      beds_(static_cast<std::size_t>(shape.num_ranks())),
      sent_(static_cast<std::size_t>(shape.num_ranks())) {}

ThreadGroup& ThreadWorld::group(const Group& group, const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex_);
  auto& shared = groups_[ranks];
  if (!shared) shared = std::make_unique<ThreadGroup>(*this, name_of(group), ranks);
  return *shared;
}

ByteCounter& ThreadWorld::sent(int rank, const Group& group) {
  const std::lock_guard lock(mutex_);
  return sent_[static_cast<std::size_t>(rank)][group];
}

std::map<Group, std::int64_t> ThreadWorld::sent_bytes(int rank) {
  const std::lock_guard lock(mutex_);
  std::map<Group, std::int64_t> bytes;
  for (const auto& [group, counter] : sent_[static_cast<std::size_t>(rank)]) bytes[group] = counter.load(std::memory_order_relaxed);
  return bytes;
}

bool ThreadWorld::sleep(int rank, FutexWord& word, std::uint32_t expected, Deadline deadline) {
  // The bed is taken before the look at is_aborted_, and abort looks at the beds after it has set it: one of the two sees the other.
  auto& bed = beds_[static_cast<std::size_t>(rank)].word;
  permits_.release();
  bed.store(&word);
  const bool in_time = is_aborted() || futex_wait(word, expected, deadline);
  bed.store(nullptr);
  permits_.acquire();
  return in_time;
}

void ThreadWorld::abort(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (is_aborted_.load()) return;
    abort_reason_ = reason;
    is_aborted_.store(true);
  }
  for (Bed& bed : beds_) {
    FutexWord* const word = bed.word.load();
    if (word == nullptr) continue;
    word->fetch_or(aborted_bit);
    futex_wake(*word, INT_MAX);
  }
}

std::string ThreadWorld::abort_reason() {
  const std::lock_guard lock(mutex_);
  return abort_reason_;
}

}  // namespace echelon
