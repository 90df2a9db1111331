#include "base/team.h"

#include "base/team_cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace echelon {
namespace {

TEST(Team, ComputesEveryShareOnce) {
  for (const int num_threads : {1, 2, 5}) {
    Team team(num_threads);
    for (const int num_shares : {0, 1, 2, 3, 100})
      for (int repeat = 0; repeat < 300; ++repeat) {
        std::array<int, 100> times{};  // plain integers: the writes of shares are visible when run returns
        auto count = [&](int share) { ++times.at(static_cast<std::size_t>(share)); };
        team.run(num_shares, count);
        for (int share = 0; share < 100; ++share)
          ASSERT_EQ(times.at(static_cast<std::size_t>(share)), share < num_shares ? 1 : 0) << share;
      }
  }
}

TEST(Team, WorkersThatSleepAreWoken) {
  Team team(2);
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::atomic<int> num_present = 0;
    auto meet = [&](int) {  // both shares must be computed at the same time
      ++num_present;
      while (num_present < 2) std::this_thread::yield();
    };
    team.run(2, meet);
    EXPECT_EQ(num_present, 2);
  }
}

TEST(Team, AnotherThreadMayHelp) {
  Team team(1);
  std::atomic<bool> has_helped = false;
  std::thread guest([&] {
    while (!team.help()) std::this_thread::yield();
    has_helped = true;
  });
  std::atomic<int> num_present = 0;
  auto meet = [&](int) {
    ++num_present;
    while (num_present < 2) std::this_thread::yield();
  };
  team.run(2, meet);
  guest.join();
  EXPECT_TRUE(has_helped);
  EXPECT_FALSE(team.help());
}

TEST(Team, TheExceptionOfTheLowestShareComesThrough) {
  Team team(3);
  for (int repeat = 0; repeat < 100; ++repeat) {
    std::atomic<int> num_computed = 0;
    auto fail_from_three = [&](int share) {
      ++num_computed;
      if (share >= 3) throw std::runtime_error(std::to_string(share));
    };
    try {
      team.run(10, fail_from_three);
      FAIL() << "no exception";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "3");
    }
    EXPECT_EQ(num_computed, 10);
  }
  int sum = 0;
  auto add = [&](int share) { sum += share; };
  team.run(1, add);  // and the next job has none
}

TEST(Team, AShareMayWaitForThoseBeforeIt) {
  Team team(3);
  for (int round = 0; round < 200; ++round) {
    std::atomic<std::uint32_t> num_ended = 0;
    std::atomic<int> num_early = 0;
    auto wait_and_end = [&](int share) {
      Team::await(num_ended, share);
      if (num_ended != static_cast<std::uint32_t>(share)) ++num_early;
      ++num_ended;
      num_ended.notify_all();
    };
    team.run(20, wait_and_end);
    ASSERT_EQ(num_early, 0);
    ASSERT_EQ(num_ended, 20U);
  }
}

TEST(Team, AShareThatHasSharesComputesThemItself) {
  Team team(2);
  std::array<std::set<std::thread::id>, 4> threads;
  auto outer = [&](int share) {
    auto inner = [&](int) { threads.at(static_cast<std::size_t>(share)).insert(std::this_thread::get_id()); };
    Team::of_this_thread(2).run(5, inner);
  };
  team.run(4, outer);
  for (const auto& of_share : threads) EXPECT_EQ(of_share.size(), 1);
}

TEST(Team, OfAThreadGrowsAndStays) {
  Team& two = Team::of_this_thread(2);
  EXPECT_EQ(two.num_threads(), 2);
  EXPECT_EQ(&Team::of_this_thread(1), &two);
  EXPECT_EQ(Team::of_this_thread(3).num_threads(), 3);
  Team* of_another = nullptr;
  std::thread([&] { of_another = &Team::of_this_thread(2); }).join();
  EXPECT_NE(of_another, &Team::of_this_thread(3));
}

std::vector<int> processors_of_this_thread() {
  cpu_set_t mask;
  std::vector<int> processors;
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return processors;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor)
    if (CPU_ISSET(processor, &mask)) processors.push_back(processor);
  return processors;
}

TEST(Team, AWorkerIsOnAnotherCoreThanTheCaller) {
  const std::vector<int> all = processors_of_this_thread();
  if (all.size() < 2) GTEST_SKIP() << "one processor";
  for (const int own : {all[0], all[1]}) {
    std::thread([&] {  // with a team that no other thread uses
      spread_team_of_this_thread({{all[0]}, {all[1]}});
      cpu_set_t mask;
      CPU_ZERO(&mask);
      CPU_SET(own, &mask);
      ASSERT_EQ(sched_setaffinity(0, sizeof(mask), &mask), 0);
      const auto caller = std::this_thread::get_id();
      std::vector<int> of_worker;
      std::atomic<int> num_begun = 0;
      auto meet = [&](int) {
        // Each thread gets one share.
        for (num_begun.fetch_add(1); num_begun.load() < 2;) std::this_thread::yield();
        if (std::this_thread::get_id() != caller) of_worker = processors_of_this_thread();
      };
      Team::of_this_thread(2).run(2, meet);
      EXPECT_EQ(of_worker, std::vector<int>{own == all[0] ? all[1] : all[0]});
    })
        .join();
  }
}

}  // namespace
}  // namespace echelon
