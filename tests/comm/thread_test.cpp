// The thread transport passes the conformance suite.
#include "comm/conformance.h"
#include "comm/thread/thread_world.h"

#include <gtest/gtest.h>

#include <pthread.h>
#include <sched.h>
#include <atomic>

namespace echelon {
namespace {

void run_threads(const MeshShape& shape, const std::function<void(Mesh&)>& body) {
  run_thread_ranks(shape, {.timeout_seconds = 60}, body);
}

class ThreadTransport : public ::testing::TestWithParam<conformance::Requirement> {};
TEST_P(ThreadTransport, Conforms) { GetParam().test(run_threads); }
INSTANTIATE_TEST_SUITE_P(Comm, ThreadTransport, ::testing::ValuesIn(conformance::requirements),
                         conformance::name_of_requirement);

// As on a machine with as many cores as ranks (which then spin before they sleep), and on one with a single core.
TEST(ThreadComm, AnyNumberOfPermitsWillDo) {
  for (const int permits : {1, 16}) {
    const auto run_with = [permits](const MeshShape& shape, const std::function<void(Mesh&)>& body) {
      run_thread_ranks(shape, {.compute_permits = permits, .timeout_seconds = 60}, body);
    };
    conformance::many_operations_may_be_in_flight(run_with);
    conformance::ranks_may_wait_in_different_orders(run_with);
    conformance::polling_alone_finishes(run_with);
  }
}

TEST(ThreadComm, NoMoreRanksComputeThanThereArePermits) {
  constexpr int permits = 3;
  std::atomic<int> num_computing = 0, most_computing = 0;
  run_thread_ranks(
      MeshShape({{Axis::dp_replicate, 12}}), {.compute_permits = permits, .timeout_seconds = 60}, [&](Mesh& mesh) {
        Comm& comm = mesh.comm({{Axis::dp_replicate}});
        for (int round = 0; round < 50; ++round) {
          const int now = num_computing.fetch_add(1) + 1;
          for (int most = most_computing.load(); most < now && !most_computing.compare_exchange_weak(most, now);) {
          }
          sched_yield();
          num_computing.fetch_sub(1);
          comm.barrier().wait();
        }
      });
  EXPECT_GE(most_computing, 1);
  EXPECT_LE(most_computing, permits);
}

std::size_t stack_bytes(const pthread_attr_t& attributes) {
  std::size_t num_bytes = 0;
  pthread_attr_getstacksize(&attributes, &num_bytes);
  return num_bytes;
}

TEST(ThreadComm, FewRanksHaveTheSystemsStacks) {
  pthread_attr_t system;
  pthread_attr_init(&system);
  run_thread_ranks(MeshShape({{Axis::dp_replicate, 8}}), {}, [&](Mesh& /*mesh*/) {
    constexpr std::size_t most_guard_bytes = 64 << 10;
    pthread_attr_t own;
    pthread_getattr_np(pthread_self(), &own);
    EXPECT_GE(stack_bytes(own) + most_guard_bytes, stack_bytes(system));
    pthread_attr_destroy(&own);
  });
  pthread_attr_destroy(&system);
}

TEST(ThreadComm, AThousandRanksOnAnyMachine) {
  const MeshShape shape({{Axis::dp_replicate, 16}, {Axis::pp, 8}, {Axis::tp, 8}});
  run_thread_ranks(shape, {.timeout_seconds = 120}, [&](Mesh& mesh) {
    float x = 1;
    const Tensor x_1 = {&x, DType::float32, {1}};
    for (const Group& group : {Group{{Axis::tp}}, Group{{Axis::pp}}, Group{data_axes}})
      mesh.comm(group).all_reduce(x_1, ReduceOp::sum).wait();
    EXPECT_EQ(x, 1024);
    mesh.comm({world_axes}).all_reduce(x_1, ReduceOp::sum).wait();
    EXPECT_EQ(x, 1024 * 1024);

    Comm& pp = mesh.comm({{Axis::pp}});  // a token goes down the pipeline and up again
    std::int32_t token = pp.rank() == 0 ? mesh.rank() : -1;
    const Tensor token_1 = {&token, DType::int32, {1}};
    if (pp.rank() > 0) pp.receive(token_1, pp.rank() - 1).wait();
    if (pp.rank() < 7) pp.send(token_1, pp.rank() + 1).wait();
    if (pp.rank() < 7) pp.receive(token_1, pp.rank() + 1).wait();
    if (pp.rank() > 0) pp.send(token_1, pp.rank() - 1).wait();
    EXPECT_EQ(token, shape.ranks_of({{Axis::pp}}, mesh.rank()).front());
  });
}

}  // namespace
}  // namespace echelon
