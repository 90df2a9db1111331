// Thread ranks that wait compute for those that do not, as far as there are permits.
#include "base/team.h"
#include "comm/thread/thread_world.h"

#include <gtest/gtest.h>

#include <sched.h>
#include <atomic>
#include <chrono>

namespace echelon {
namespace {

constexpr Group everybody = {world_axes};

void run(int num_ranks, int permits, const std::function<void(Mesh&)>& body) {
  run_thread_ranks(MeshShape({{Axis::dp_replicate, num_ranks}}), {.compute_permits = permits, .timeout_seconds = 60},
                   body);
}

bool lends_within(double seconds, int expected) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (Team::num_threads_now(1) != expected) {
    if (std::chrono::steady_clock::now() > end) return false;
    sched_yield();
  }
  return true;
}

// The number of shares that were under way at a time.
int most_at_a_time(int num_shares, int wanted) {
  std::atomic<int> num_present = 0, most = 0;
  auto meet = [&](int) {
    const int now = ++num_present;
    for (int seen = most.load(); seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (most < wanted && std::chrono::steady_clock::now() < end) sched_yield();
    --num_present;
  };
  Team::of_this_thread(1).run(num_shares, meet);
  return most;
}

// Rank 0 computes while all others wait for it, in spins first and then asleep.
TEST(ThreadLending, RanksThatWaitHelp) {
  for (const int permits : {3, 8})  // fewer than ranks, and more
    run(5, permits, [permits](Mesh& mesh) {
      Comm& comm = mesh.comm(everybody);
      const int expected = std::min(5, permits);
      for (int round = 0; round < 10; ++round) {
        if (mesh.rank() == 0) {
          EXPECT_TRUE(lends_within(20, expected)) << Team::num_threads_now(1) << " threads, not " << expected;
          EXPECT_EQ(most_at_a_time(20, expected), expected);
        }
        comm.barrier().wait();
      }
    });
}

TEST(ThreadLending, NobodyHelpsWithoutAPermit) {
  run(4, 1, [](Mesh& mesh) {
    if (mesh.rank() == 0) {
      for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(Team::num_threads_now(1), 1);
        EXPECT_EQ(most_at_a_time(4, 1), 1);
      }
    }
    mesh.comm(everybody).barrier().wait();
  });
}

// Who helps still goes on as soon as what it waits for has come, and nothing is lost or done twice.
TEST(ThreadLending, HelpAndMessagesInterleave) {
  for (const int permits : {1, 2, 4, 8})
    run(4, permits, [](Mesh& mesh) {
      Comm& comm = mesh.comm(everybody);
      for (int round = 0; round < 200; ++round) {
        std::vector<float> x(static_cast<std::size_t>(Team::num_threads_now(1) * 16), 0.0F);
        auto fill = [&](int share) { x[static_cast<std::size_t>(share)] += 1; };
        if (round % 4 != mesh.rank()) Team::of_this_thread(1).run(static_cast<int>(x.size()), fill);
        float sum = 0;
        for (const float number : x) sum += number == 1 ? 0 : 1;
        EXPECT_EQ(sum, round % 4 != mesh.rank() ? 0 : static_cast<float>(x.size()));
        float count = 1;
        comm.all_reduce({&count, DType::float32, {1}}, ReduceOp::sum).wait();
        EXPECT_EQ(count, 4);
      }
    });
}

// A rank that fails while another one computes for it: all end.
TEST(ThreadLending, AFailureEndsAll) {
  const auto body = [](Mesh& mesh) {
    if (mesh.rank() == 0) {
      EXPECT_TRUE(lends_within(20, 2));
      auto fail = [](int share) {
        if (share == 3) throw Failure("the fourth share");
      };
      Team::of_this_thread(1).run(8, fail);
    }
    mesh.comm(everybody).barrier().wait();
  };
  try {
    run(2, 2, body);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rank 0: the fourth share");
  }
}

}  // namespace
}  // namespace echelon
