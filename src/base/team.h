// Threads that share the work of one operation. Shares are claimed, not assigned: the first free thread takes the next
// one. A thread that wakes late or is descheduled only fails to help. A thread that waits for something else can lend
// its core (help).
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace echelon {

class Lending;

/// A function of the share's number, borrowed from a caller that waits for it to return.
class ShareFunction {
 public:
  template <class F>
  requires std::is_invocable_v<F&, int> ShareFunction(F& f)
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, int share) { (*static_cast<F*>(object))(share); }) {}
  void operator()(int share) const { call_(object_, share); }

 private:
  void* object_;
  void (*call_)(void*, int);
};

/// A caller and num_threads - 1 workers. Between jobs workers spin for some ten microseconds, then sleep. They never
/// spin if this process has more workers and callers than cores. One thread at a time calls run.
class Team {
 public:
  /// A team whose caller and those of others lend each other their cores (lending.h).
  struct Place {
    Lending* lending = nullptr;
    int member = 0;
  };
  explicit Team(int num_threads, const Place& place = {nullptr, 0});
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  /// The calling thread's own team, of at least num_threads. The helpers of an operation and its scratch memory belong
  /// to the thread that runs it.
  [[nodiscard]] static Team& of_this_thread(int num_threads);
  /// num_threads, plus those that other callers would lend to this thread's team if its next job started now.
  [[nodiscard]] static int num_threads_now(int num_threads);
  /// num_threads, plus those that may be lent during a job. For jobs of many milliseconds.
  [[nodiscard]] static int most_threads(int num_threads);

  [[nodiscard]] int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  static constexpr int most_shares = (1 << 16) - 1;  // of a job

  /// Calls f(share) for every share in [0, num_shares), claimed in this order, on the calling thread and its helpers.
  /// Returns when all have ended. If shares throw, the exception of the lowest share is rethrown. A call from within a
  /// share runs entirely on the calling thread.
  void run(int num_shares, ShareFunction f);

  /// Called within a share: waits until `count` is at least `least`. Shares that were claimed before this one increase
  /// it and call notify_all. This waits for descheduled threads too.
  static void await(const std::atomic<std::uint32_t>& count, std::int64_t least);

  /// Computes one share of the current job; false if none is left. Any thread may call it while the team exists.
  bool help();

 private:
  friend class Lending;
  struct Failure {
    int share = 0;
    std::exception_ptr exception;
  };

  /// Makes the team the calling thread's own. Returns the previous one.
  static Team* adopt(Team* team);
  void grow(int num_threads);
  void run_alone(int num_shares, ShareFunction f);  // with the team's own threads
  void offer(int num_shares, const ShareFunction& f);
  void take_part();
  void rethrow_failure();
  void work();
  void compute(int share);
  void wait_for_shares();
  [[nodiscard]] bool has_shares() const;
  static bool stay_awake(const std::atomic<std::uint32_t>& word, std::uint32_t seen);

  // The next share, the number of shares and the job's number in one word, so that no share is claimed for the wrong
  // job.
  alignas(64) std::atomic<std::uint64_t> ticket_ = 0;
  alignas(64) std::atomic<std::uint32_t> num_unfinished_ = 0;
  // Workers sleep on this word. It changes with every job and at the end.
  alignas(64) std::atomic<std::uint32_t> num_calls_ = 0;
  std::atomic<int> num_asleep_ = 0;
  std::atomic<bool> is_over_ = false;

  const Place place_;
  const ShareFunction* function_ = nullptr;  // of the current job; read only by threads that claimed a share of it
  std::mutex failure_mutex_;
  Failure failure_;
  std::vector<std::thread> workers_;
};

}  // namespace echelon
