// Callers of teams lend each other their cores: a caller that waits computes shares of the others' operations. Pipeline
// bubbles and uneven stages then cost little. Work is divided but sums are not, so the bits do not depend on who
// helped.
#pragma once

#include "base/team.h"

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

namespace echelon {

class Lending {
 public:
  /// Members that sleep while they wait and leave their cores idle.
  class Sleepers {
   public:
    virtual ~Sleepers() = default;
    [[nodiscard]] virtual int num_idle() const = 0;
    /// Wakes at most so many sleepers, which then help.
    virtual void wake_idle(int count) = 0;
  };

  Lending(int num_members, Sleepers& sleepers);

  /// Makes this member's team the calling thread's own (Team::of_this_thread).
  class Membership {
   public:
    Membership(Lending& lending, int member);
    ~Membership();
    Membership(const Membership&) = delete;
    Membership& operator=(const Membership&) = delete;

   private:
    Team* const before_;
  };

  /// A member that waits. While it is awake, it is available to help.
  class Waiter {
   public:
    explicit Waiter(Lending& lending) : num_awake_(lending.num_awake_) {}
    ~Waiter() { sleep(); }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    void stay_awake() {
      if (!std::exchange(is_awake_, true)) num_awake_.fetch_add(1, std::memory_order_relaxed);
    }
    void sleep() {
      if (std::exchange(is_awake_, false)) num_awake_.fetch_sub(1, std::memory_order_relaxed);
    }

   private:
    std::atomic<int>& num_awake_;
    bool is_awake_ = false;
  };

  /// The calling member and each of its workers compute one share of the others' operations. False if there is none.
  bool help();

  /// Members that would help with an operation that started now.
  [[nodiscard]] int num_available() const { return num_awake_.load(std::memory_order_relaxed) + sleepers_.num_idle(); }
  [[nodiscard]] int num_members() const { return static_cast<int>(teams_.size()); }

 private:
  friend class Team;
  /// From now on others may compute shares of the team's job. Sleepers are woken if the job has more shares than the
  /// team is likely to take.
  void open(const Team& team, int num_shares);
  void close(const Team& team);
  [[nodiscard]] Team* with_shares() const;

  Sleepers& sleepers_;
  std::vector<std::unique_ptr<Team>> teams_;  // by member
  std::vector<std::atomic<bool>> is_open_;    // likewise
  alignas(64) std::atomic<int> num_awake_ = 0;
  alignas(64) std::atomic<int> num_open_ = 0;
};

}  // namespace echelon
