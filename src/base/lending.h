// Callers of teams that lend each other their cores: one that waits for something else computes shares of the others'
// operations meanwhile. A pipeline's bubbles and uneven stages then cost little, and since work is divided and sums
// never are, the bits do not depend on who helped.
#pragma once

#include "base/team.h"

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

namespace echelon {

class Lending {
 public:
  /// Members that sleep while they wait, and have left their cores idle.
  class Sleepers {
   public:
    virtual ~Sleepers() = default;
    [[nodiscard]] virtual int num_idle() const = 0;
    /// Wakes at most so many; they come to help.
    virtual void wake_idle(int count) = 0;
  };

  Lending(int num_members, Sleepers& sleepers);

  /// Gives the calling thread the team of this member, as its own (Team::of_this_thread).
  class Membership {
   public:
    Membership(Lending& lending, int member);
    ~Membership();
    Membership(const Membership&) = delete;
    Membership& operator=(const Membership&) = delete;

   private:
    Team* const before_;
  };

  /// A member that waits: while it is awake, it is counted on.
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

  /// The calling member and its workers compute a share of the others' operations, each one; false if there is none.
  bool help();

  /// Members that would help with an operation that began now.
  [[nodiscard]] int num_at_hand() const { return num_awake_.load(std::memory_order_relaxed) + sleepers_.num_idle(); }
  [[nodiscard]] int num_members() const { return static_cast<int>(teams_.size()); }

 private:
  friend class Team;
  /// Others may compute shares of the team's job from now on; if it has more than the team itself is likely to take,
  /// sleepers come.
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
