#include "base/team.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <set>
#include <stdexcept>
#include <string>

namespace echelon {
namespace {

TEST(Team, ComputesEveryShareOnce) {
  for (const int num_threads : {1, 2, 5}) {
    Team team(num_threads);
    for (const int num_shares : {0, 1, 2, 3, 100})
      for (int repeat = 0; repeat < 300; ++repeat) {
        std::array<int, 100> times{};  // plain numbers: what shares write is there when run returns
        auto count = [&](int share) { ++times.at(static_cast<std::size_t>(share)); };
        team.run(num_shares, count);
        for (int share = 0; share < 100; ++share) ASSERT_EQ(times.at(static_cast<std::size_t>(share)), share < num_shares ? 1 : 0) << share;
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

}  // namespace
}  // namespace echelon
