// Waiting members compute shares of the others' operations.
#include "base/lending.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

namespace echelon {
namespace {

struct NobodySleeps final : Lending::Sleepers {
  [[nodiscard]] int num_idle() const override { return 0; }
  void wake_idle(int) override { FAIL() << "nobody is to be woken"; }
};

struct Counted final : Lending::Sleepers {
  explicit Counted(int count) : idle(count) {}
  [[nodiscard]] int num_idle() const override { return idle; }
  void wake_idle(int count) override { woken += count; }
  int idle = 0, woken = 0;
};

// Shares that end only after all of them have started, each on its own thread.
void run_together(int num_shares) {
  std::atomic<int> num_present = 0;
  auto meet = [&](int) {
    ++num_present;
    while (num_present < num_shares) std::this_thread::yield();
  };
  Team::of_this_thread(1).run(num_shares, meet);
  EXPECT_EQ(num_present, num_shares);
}

TEST(Lending, AThreadAloneHasItsOwnCoresOnly) {
  EXPECT_EQ(Team::num_threads_now(1), 1);
  EXPECT_EQ(Team::num_threads_now(3), 3);
}

TEST(Lending, WhoWaitsAwakeIsCountedAndHelps) {
  NobodySleeps sleepers;
  Lending lending(2, sleepers);
  std::atomic<bool> is_waiting = false, is_over = false;
  std::thread other([&] {
    const Lending::Membership membership(lending, 1);
    Lending::Waiter waiter(lending);
    EXPECT_FALSE(lending.help()) << "there is nothing to help with";
    waiter.stay_awake();
    is_waiting = true;
    int num_helped = 0;
    while (!is_over) num_helped += lending.help() ? 1 : 0;
    EXPECT_EQ(num_helped, 20) << "one share of two, of each job";
  });
  {
    const Lending::Membership membership(lending, 0);
    while (!is_waiting) std::this_thread::yield();
    EXPECT_EQ(Team::num_threads_now(1), 2);
    for (int repeat = 0; repeat < 20; ++repeat) run_together(2);
    is_over = true;
  }
  other.join();
  EXPECT_EQ(lending.num_available(), 0);
  EXPECT_EQ(Team::num_threads_now(1), 1) << "who is no member borrows nothing";
}

TEST(Lending, TheWorkersOfAMemberHelpWithIt) {
  NobodySleeps sleepers;
  Lending lending(2, sleepers);
  std::atomic<bool> is_over = false;
  std::thread other([&] {
    const Lending::Membership membership(lending, 1);
    (void)Team::of_this_thread(3);
    while (!is_over) lending.help();
  });
  const Lending::Membership membership(lending, 0);
  for (int repeat = 0; repeat < 20; ++repeat) run_together(4);
  is_over = true;
  other.join();
}

TEST(Lending, ManyMembersComputeAndHelpInTurns) {
  constexpr int num_members = 4;
  NobodySleeps sleepers;
  Lending lending(num_members, sleepers);
  std::vector<std::thread> threads;
  for (int member = 0; member < num_members; ++member)
    threads.emplace_back([&lending, member] {
      const Lending::Membership membership(lending, member);
      for (int round = 0; round < 300; ++round) {
        // Plain integers: the writes of shares are visible when run returns, whichever thread computed them.
        std::vector<int> times(7, 0);
        auto count = [&](int share) { ++times[static_cast<std::size_t>(share)]; };
        Team::of_this_thread(1).run(7, count);
        ASSERT_EQ(times, std::vector<int>(7, 1));
        if (round % num_members != member) lending.help();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Lending, AFailureOfALentShareComesThroughWhereItBelongs) {
  NobodySleeps sleepers;
  Lending lending(2, sleepers);
  std::atomic<bool> is_over = false;
  std::thread other([&] {
    const Lending::Membership membership(lending, 1);
    while (!is_over) lending.help();
  });
  const Lending::Membership membership(lending, 0);
  std::atomic<int> num_present = 0;
  auto fail = [&](int share) {
    ++num_present;
    while (num_present < 2) std::this_thread::yield();
    throw std::runtime_error(std::to_string(share));
  };
  EXPECT_THROW(Team::of_this_thread(1).run(2, fail), std::runtime_error);
  is_over = true;
  other.join();
}

TEST(Lending, SleepersAreWokenForSharesThatNobodyAwakeTakes) {
  Counted sleepers(3);
  Lending lending(8, sleepers);
  const Lending::Membership membership(lending, 0);
  EXPECT_EQ(Team::num_threads_now(2), 2 * (1 + 3));
  Lending::Waiter awake(lending);
  auto nothing = [](int) {};
  const auto woken_for = [&](int num_shares) {
    sleepers.woken = 0;
    Team::of_this_thread(1).run(num_shares, nothing);
    return sleepers.woken;
  };
  EXPECT_EQ(woken_for(1), 0);
  EXPECT_EQ(woken_for(2), 1);
  EXPECT_EQ(woken_for(9), 3);
  awake.stay_awake();
  EXPECT_EQ(woken_for(2), 0);
  EXPECT_EQ(woken_for(3), 1);
  awake.sleep();
  EXPECT_EQ(woken_for(3), 2);
}

}  // namespace
}  // namespace echelon
