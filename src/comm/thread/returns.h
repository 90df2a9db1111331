// Which thread ranks of a run have returned. A rank that never does must not keep its process alive, and a thread
// cannot be ended from outside: so the process ends.
#pragma once

#include "base/error.h"
#include "comm/thread/world.h"

#include <condition_variable>
#include <mutex>
#include <vector>

namespace echelon {

class Returns {
 public:
  Returns(ThreadWorld& world, int num_ranks) : world_(world), has_returned_(static_cast<std::size_t>(num_ranks)) {}

  /// Called by the rank's thread, as its last action.
  void add(int rank);

  /// Waits for the first `num_ranks` ranks, and returns those that never do. If all permits are kept for
  /// comm.timeout_seconds and a few seconds while a rank waits for one, the world is aborted. Once it is, ranks have
  /// until its return_deadline.
  [[nodiscard]] std::vector<int> await(int num_ranks);

 private:
  void watch_permits(Deadline now);
  [[nodiscard]] std::vector<int> missing(int num_ranks) const;

  ThreadWorld& world_;
  std::int64_t num_handovers_ = -1;  // that were seen last
  Deadline handed_over_ = {};        // when they were first seen

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<bool> has_returned_;
  int num_returned_ = 0;
  Deadline last_return_ = {};
};

/// Prints why the run failed and which ranks have not returned to stderr, and ends the process.
[[noreturn]] void end_without(const std::vector<int>& missing, const Error& cause);

}  // namespace echelon
