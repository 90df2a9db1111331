// As many permits to compute as there are cores. A rank holds one while it computes and gives it back before it waits
// for a peer, so any number of ranks runs without thrashing, and a BLAS library never meets more callers than cores.
//
// A permit goes from hand to hand: who waits is only written into a queue when what it waits for has come, and a rank
// that goes to sleep calls the next one of the queue. So a wait costs one sleep and one call, however many wait for the
// same thing.
//
// Where permits are left over, ranks that sleep may be called to help those that compute.
#pragma once

#include "base/lending.h"
#include "comm/thread/futex.h"
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
  /// Anybody may ask, and may be told of a rank that is just about to come or go.
  [[nodiscard]] int size() const { return size_.load(); }

 private:
  friend class Permits;
  std::atomic<int> size_ = 0;
  int first_ = -1, last_ = -1;  // guarded by the permits' mutex
};

class Permits final : public Lending::Sleepers {
 public:
  /// `cores`: one for every permit, or none.
  Permits(int num_permits, int num_ranks, std::vector<CpuSet> cores = {});

  /// From now on, whoever has the i-th permit computes on the i-th core. Until then, and where there are no cores, it
  /// is where the system puts it, and that may be where another one computes. Called by a rank that has a permit.
  void bind(int rank);

  /// Called by the rank's own thread.
  void acquire(int rank);
  void release(int rank);
  /// Lets a rank compute that waits for a permit, if there is one.
  void yield(int rank);

  /// Gives the permit back while `word` is `expected` and until the queue is woken; false if the deadline passed. Holds
  /// a permit again when it returns.
  bool sleep(int rank, RankQueue& queue, const std::atomic<std::uint32_t>& word, std::uint32_t expected,
             Deadline deadline);
  /// The first `count` ranks of the queue get their turn. Whoever changes a word calls this afterwards.
  void wake(RankQueue& queue, int count);
  /// Nobody sleeps from now on.
  void wake_all();

  [[nodiscard]] int num_idle() const override {
    return std::min(num_free_.load(std::memory_order_relaxed), num_asleep_.load(std::memory_order_relaxed));
  }
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
    int permit = -1;  // that it holds; its own, or of the one who hands it a permit
    int core = -1;    // that its thread is bound to; likewise
    pid_t thread = 0;
  };
  using Called = std::optional<int>;

  [[nodiscard]] Bed& bed(int rank) { return beds_[static_cast<std::size_t>(rank)]; }
  void push(RankQueue& queue, int rank);
  void remove(int rank);
  [[nodiscard]] Called give_back(int rank);
  [[nodiscard]] bool take_or_queue(int rank);
  void call(const Called& rank);
  void put_on_core(int rank);
  bool await_call(int rank, const std::optional<Deadline>& deadline);

  const bool is_scarce_;
  const std::vector<CpuSet> cores_;  // by permit
  std::atomic<bool> is_bound_ = false;
  std::mutex mutex_;  // guards what follows; anybody may look at the two counts
  std::vector<int> free_;
  std::atomic<int> num_free_;
  std::atomic<int> num_asleep_ = 0;  // in another queue than ready_
  bool nobody_sleeps_ = false;
  RankQueue ready_;  // for a permit
  std::vector<Bed> beds_;
  std::size_t next_idle_ = 0;  // where the search for one begins
};

}  // namespace echelon
