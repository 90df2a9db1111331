// Threads that share the work of one operation. Shares are claimed, not assigned: whoever comes first takes the next
// one, so a thread that wakes late or that the machine has taken away costs nothing but its help, and a thread that
// waits for something else can lend its core (help).
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

/// A function of the share's number, borrowed from a caller who waits for its end.
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

/// A caller and num_threads - 1 workers, who wait between jobs: awake for some ten microseconds, then asleep. They are
/// never awake if this process has more of them, and of their callers, than cores to run on. One thread at a time calls
/// run.
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

  /// The calling thread's own team, of at least num_threads: the threads that help with an operation belong, like its
  /// scratch, to the thread that it runs on.
  [[nodiscard]] static Team& of_this_thread(int num_threads);
  /// num_threads, and those that other callers lend to this thread's team if its next job begins now.
  [[nodiscard]] static int num_threads_now(int num_threads);
  /// num_threads, and those that may be lent while a job lasts: for jobs of many milliseconds.
  [[nodiscard]] static int most_threads(int num_threads);

  [[nodiscard]] int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  static constexpr int most_shares = (1 << 16) - 1;  // of a job

  /// f(share) for every share in [0, num_shares), claimed in this order, on the calling thread and whoever helps;
  /// returns when all have ended. Of the exceptions thrown by shares the one of the lowest share comes through. Within
  /// a share of any team: all on the calling thread.
  void run(int num_shares, ShareFunction f);

  /// Within a share: returns once `count` is at least `least`, to which shares that were claimed before this one bring
  /// it. They tell by notify_all. A thread that the machine takes away is waited for here.
  static void await(const std::atomic<std::uint32_t>& count, std::int64_t least);

  /// Computes one share of the job at hand; false if none is left. For any thread, as long as the team is there.
  bool help();

 private:
  friend class Lending;
  struct Failure {
    int share = 0;
    std::exception_ptr exception;
  };

  /// Makes the team the calling thread's own; that of before.
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

  // The next share to be claimed, the number of shares and the job's number in one word, so that no share of one job is
  // claimed as one of another.
  alignas(64) std::atomic<std::uint64_t> ticket_ = 0;
  alignas(64) std::atomic<std::uint32_t> num_unfinished_ = 0;
  // Changes with every job, and at the end: what workers sleep on.
  alignas(64) std::atomic<std::uint32_t> num_calls_ = 0;
  std::atomic<int> num_asleep_ = 0;
  std::atomic<bool> is_over_ = false;

  const Place place_;
  const ShareFunction* function_ = nullptr;  // of the job at hand; read only by those who hold a share of it
  std::mutex failure_mutex_;
  Failure failure_;
  std::vector<std::thread> workers_;
};

}  // namespace echelon
