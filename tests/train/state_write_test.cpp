// A rank and the thread that writes for it: errors arrive, and what was given up reads no memory.
#include "train/save/state_write.h"

#include "train/save/background_thread.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>
#include <vector>

namespace echelon {
namespace {

using namespace std::chrono_literals;

StateWrite::Clock::time_point soon() { return StateWrite::Clock::now() + 20ms; }

TEST(StateWrites, KeepTheirError) {
  StateWrite good([](StateWrite&) {}), bad([](StateWrite&) { throw Failure("the disk is full"); }),
      foreign([](StateWrite&) { throw std::runtime_error("something else"); });
  for (StateWrite* each : {&good, &bad, &foreign}) {
    EXPECT_FALSE(each->is_done());
    EXPECT_FALSE(each->wait_until(soon()));
    each->perform();
    EXPECT_TRUE(each->wait_until(soon()));
  }
  EXPECT_NO_THROW(good.require_success());
  EXPECT_THROW(bad.require_success(), Error);
  EXPECT_THROW(foreign.require_success(), Error);
}

TEST(StateWrites, ThatAreGivenUpReadNoMemory) {
  std::promise<void> reads, may_end;
  std::atomic<bool> has_ended = false, reads_again = false;
  StateWrite write([&](StateWrite& progress) {
    progress.read_memory([&] {
      reads.set_value();
      may_end.get_future().wait();
      has_ended = true;
    });
    progress.read_memory([&] { reads_again = true; });
  });
  std::thread thread([&] { write.perform(); });
  reads.get_future().wait();
  EXPECT_FALSE(write.wait_for_units(1, soon()));
  std::thread ends([&] {
    std::this_thread::sleep_for(20ms);
    may_end.set_value();
  });
  write.cancel("it takes too long");
  EXPECT_TRUE(has_ended) << "cancel() waits for the read that has begun";
  thread.join();
  ends.join();
  EXPECT_FALSE(reads_again);
  EXPECT_TRUE(write.is_cancelled());
  EXPECT_TRUE(write.wait_for_units(1, soon())) << "no rank waits for what was given up";
  EXPECT_THROW(write.require_success(), Error);
  StateWrite never([](StateWrite&) { FAIL() << "it was given up before it began"; });
  never.cancel("the run has ended");
  never.perform();
}

TEST(StateWrites, WhoseReadFailsCanBeGivenUp) {
  StateWrite write([&](StateWrite& progress) { progress.read_memory([] { throw Failure("no such values"); }); });
  write.perform();
  write.cancel("the run has ended");
  EXPECT_FALSE(write.is_cancelled());
  EXPECT_THROW(write.require_success(), Error);
}

TEST(BackgroundThreads, FinishAllTasksInOrder) {
  std::vector<int> done;
  {
    BackgroundThread thread;
    for (int i = 0; i < 100; ++i) thread.add([&done, i] { done.push_back(i); });
  }
  ASSERT_EQ(done.size(), 100U);
  EXPECT_TRUE(std::ranges::is_sorted(done));
}

}  // namespace
}  // namespace echelon
