// A semaphore with one permit to compute per core. A rank holds a permit while it computes and releases it before it
// waits for a peer. So any number of ranks runs without thrashing, and a BLAS library never has more callers than
// cores.
//
// Permits are handed over directly: a rank is queued for a permit only when the event that it waits for has occurred,
// and a rank that goes to sleep wakes the next rank of the queue. So a wait costs one sleep and one wake, however many
// ranks wait for the same event.
//
// If permits are free, sleeping ranks may be woken to help the ranks that compute.
#pragma once

#include "base/lending.h"
#include "comm/thread/futex.h"
#include "comm/thread/orders.h"
#include "machine/cpus.h"

#include <sys/types.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

namespace echelon {

/// Ranks that wait, first come first served. A rank is in one queue at most.
class RankQueue {
 public:
  /// Any thread may call it; the value may be out of date.
  [[nodiscard]] int size() const { return size_.load(order::see_sleepers); }

 private:
  friend class Permits;
  std::atomic<int> size_ = 0;
  int first_ = -1, last_ = -1;  // guarded by the permits' mutex
};

class Permits final : public Lending::Sleepers {
 public:
  /// `cores`: one for every permit, or none.
  Permits(int num_permits, int num_ranks, std::vector<CpuSet> cores = {});

  /// From now on, the rank with the i-th permit computes on the i-th core. Before, and without cores, the system
  /// chooses the core, possibly one on which another rank computes. Called by a rank that has a permit.
  void bind(int rank);

  /// Called by the rank's own thread.
  void acquire(int rank);
  void release(int rank);
  /// Hands the permit to a rank that waits for one, if any.
  void yield(int rank);

  /// Gives the permit back while `word` is `expected` and until the queue is woken; false if the deadline passed. Holds
  /// a permit again when it returns.
  bool sleep(int rank, RankQueue& queue, const std::atomic<std::uint32_t>& word, std::uint32_t expected,
             Deadline deadline);
  /// Wakes the first `count` ranks of the queue. Called after a change of the word that they wait for.
  void wake(RankQueue& queue, int count);
  /// No rank sleeps or waits for a permit from now on.
  void wake_all();

  [[nodiscard]] int num_idle() const override {
    return std::min(num_free_.load(std::memory_order_relaxed), num_asleep_.load(std::memory_order_relaxed));
  }
  /// Wakes ranks as if the event that they wait for had occurred.
  void wake_idle(int count) override;

  /// A rank waits only for a permit.
  [[nodiscard]] bool has_waiters() const { return ready_.size() > 0; }
  /// How often a permit was taken or given back.
  [[nodiscard]] std::int64_t num_handovers() const { return num_handovers_.load(std::memory_order_relaxed); }
  /// The ranks that hold a permit.
  [[nodiscard]] std::vector<int> holders();
  /// More ranks than permits: a rank that spins takes a core from another one.
  [[nodiscard]] bool is_scarce() const { return is_scarce_; }

 private:
  struct alignas(64) RankSlot {
    FutexWord is_woken = 0;
    RankQueue* queue = nullptr;  // the rank is in; guarded by the mutex, like the next two
    int next = -1, previous = -1;
    int permit = -1;  // that it holds, or -1; written by itself, or by the rank that hands it a permit
    int core = -1;    // that its thread is bound to; likewise
    pid_t thread = 0;
  };
  using NextRank = std::optional<int>;

  [[nodiscard]] RankSlot& slot(int rank) { return slots_[static_cast<std::size_t>(rank)]; }
  void push(RankQueue& queue, int rank);
  void remove(int rank);
  [[nodiscard]] NextRank give_back(int rank);
  [[nodiscard]] bool take_or_queue(int rank);
  void wake_thread(const NextRank& rank);
  void put_on_core(int rank);
  bool await_wake(int rank, const std::optional<Deadline>& deadline);

  const bool is_scarce_;
  const std::vector<CpuSet> cores_;  // by permit
  std::atomic<bool> is_bound_ = false;
  std::mutex mutex_;  // guards what follows; any thread may read the two counts
  std::vector<int> free_;
  std::atomic<int> num_free_;
  std::atomic<int> num_asleep_ = 0;  // in another queue than ready_
  std::atomic<std::int64_t> num_handovers_ = 0;
  bool sleep_is_over_ = false;
  RankQueue ready_;  // for a permit
  std::vector<RankSlot> slots_;
  std::size_t next_idle_ = 0;  // where the search for one starts
};

}  // namespace echelon
