// As many permits to compute as there are cores. A rank holds one while it computes and gives it back before it waits for a peer, so any number of ranks
// runs without thrashing, and a BLAS library never meets more callers than cores.
//
// A permit goes from hand to hand: who waits is only written into a queue when what it waits for has come, and a rank that goes to sleep calls the next one of
// the queue. So a wait costs one sleep and one call, however many wait for the same thing.
//
// Where permits are left over, ranks that sleep may be called to help those that compute.
#pragma once

#include "base/lending.h"
#include "comm/thread/futex.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

namespace echelon {

/// Ranks that wait, first come first served. A rank is in one queue at most.
class RankQueue {
 public:
  /// Anybody may ask, and may be told of a rank that is just about to come or go.
  [[nodiscard]] int size() const { return size_.load(); }

 private:
  friend class Permits;
  std::atomic<int> size_ = 0;
  int first_ = -1, last_ = -1;  // guarded by the permits' mutex
};

class Permits final : public Lending::Sleepers {
 public:
  Permits(int num_permits, int num_ranks) : is_scarce_(num_ranks > num_permits), num_free_(num_permits), beds_(static_cast<std::size_t>(num_ranks)) {}

  void acquire(int rank);
  void release();
  /// Lets a rank compute that waits for a permit, if there is one.
  void yield(int rank);

  /// Gives the permit back while `word` is `expected` and until the queue is woken; false if the deadline passed. Holds a permit again when it returns.
  bool sleep(int rank, RankQueue& queue, const std::atomic<std::uint32_t>& word, std::uint32_t expected, Deadline deadline);
  /// The first `count` ranks of the queue get their turn. Whoever changes a word calls this afterwards.
  void wake(RankQueue& queue, int count);
  /// Nobody sleeps from now on.
  void wake_all();

  [[nodiscard]] int num_idle() const override { return std::min(num_free_.load(std::memory_order_relaxed), num_asleep_.load(std::memory_order_relaxed)); }
  /// Each sleeps no more, as if what it waits for had come.
  void wake_idle(int count) override;

  /// Somebody waits for a permit alone.
  [[nodiscard]] bool is_wanted() const { return ready_.size() > 0; }
  /// More ranks than permits: waiting takes a core from somebody.
  [[nodiscard]] bool is_scarce() const { return is_scarce_; }

 private:
  struct alignas(64) Bed {
    FutexWord is_called = 0;
    RankQueue* queue = nullptr;  // the rank is in; guarded by the mutex, like the next two
    int next = -1, previous = -1;
  };
  using Called = std::optional<int>;

  [[nodiscard]] Bed& bed(int rank) { return beds_[static_cast<std::size_t>(rank)]; }
  void push(RankQueue& queue, int rank);
  void remove(int rank);
  [[nodiscard]] Called give_back();
  [[nodiscard]] bool take_or_queue(int rank);
  void call(const Called& rank);
  bool await_call(int rank, const std::optional<Deadline>& deadline);

  const bool is_scarce_;
  std::mutex mutex_;  // guards what follows; anybody may look at the two counts
  std::atomic<int> num_free_;
  std::atomic<int> num_asleep_ = 0;  // in another queue than ready_
  bool nobody_sleeps_ = false;
  RankQueue ready_;  // for a permit
  std::vector<Bed> beds_;
  std::size_t next_idle_ = 0;  // where the search for one begins
};

}  // namespace echelon
