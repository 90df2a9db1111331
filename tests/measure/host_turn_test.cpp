// Processes of a host measure one after the other.
#include "measure/host_turn.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>

namespace echelon {
namespace {

TEST(HostTurn, WaitsForTheOneBefore) {
  std::optional<HostTurn> first(std::in_place, [] {});  // waits if another process of this machine measures
  std::atomic<bool> waits = false, has_turn = false;
  std::thread other([&] {
    const HostTurn second([&] {
      waits = true;
      waits.notify_all();
    });
    has_turn = true;
  });
  waits.wait(false);
  EXPECT_FALSE(has_turn);
  first.reset();
  other.join();
  EXPECT_TRUE(has_turn);
}

}  // namespace
}  // namespace echelon
