#include "measure/kept_machine.h"

#include "checkpoint/scratch_folder.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

HostSpec own_machine() { return {.processor = "A Processor (TM) 9", .num_cores = 3, .memory_bytes = 1 << 20}; }

struct Bench {
  int num_calls = 0;
  HostSpec machine = own_machine();
  double others = 0;  // the share of other processes
  MachineMeter meter() {
    const auto measure = [this] {
      ++num_calls;
      machine.core.float32_flops = 1e9 * num_calls;
      return Measurement{machine, others};
    };
    return {measure, [this] { return others; }};
  }
};

TEST(KeptMachine, IsMeasuredOnce) {
  const ScratchFolder scratch;
  const std::filesystem::path folder = scratch / "deeper" / "echelon";
  Bench bench;
  const KeptMachine first = kept_machine(own_machine(), folder, bench.meter());
  EXPECT_TRUE(first.is_new);
  EXPECT_EQ(first.path, folder / "a-processor-tm-9-3-cores.toml");
  const KeptMachine again = kept_machine(own_machine(), folder, bench.meter());
  EXPECT_FALSE(again.is_new);
  EXPECT_EQ(again.host, first.host);
  EXPECT_EQ(bench.num_calls, 1);
}

TEST(KeptMachine, IsMeasuredAgainWhereWhatWasKeptIsAnothersOrBroken) {
  const ScratchFolder scratch;
  Bench bench;
  const std::filesystem::path path = kept_machine(own_machine(), scratch / "", bench.meter()).path;
  HostSpec larger = own_machine();
  larger.memory_bytes *= 2;
  bench.machine = larger;
  EXPECT_TRUE(kept_machine(larger, scratch / "", bench.meter()).is_new);
  EXPECT_FALSE(kept_machine(larger, scratch / "", bench.meter()).is_new);
  put(path, "[machine]\nprocessor = 'A Proc");
  EXPECT_TRUE(kept_machine(larger, scratch / "", bench.meter()).is_new);
  EXPECT_EQ(bench.num_calls, 3);
}

TEST(KeptMachine, IsMeasuredAgainWhenItIsNoLongerBusy) {
  const ScratchFolder scratch;
  Bench bench;
  bench.others = 0.5;
  const KeptMachine first = kept_machine(own_machine(), scratch / "", bench.meter());
  EXPECT_TRUE(first.was_busy);
  const KeptMachine still_busy = kept_machine(own_machine(), scratch / "", bench.meter());
  EXPECT_FALSE(still_busy.is_new);
  EXPECT_TRUE(still_busy.was_busy);
  EXPECT_EQ(still_busy.host, first.host);
  bench.others = 0.01;
  const KeptMachine idle = kept_machine(own_machine(), scratch / "", bench.meter());
  EXPECT_TRUE(idle.is_new);
  EXPECT_FALSE(idle.was_busy);
  EXPECT_FALSE(kept_machine(own_machine(), scratch / "", bench.meter()).is_new);
  bench.others = 0.5;  // what was measured on an idle machine stays
  EXPECT_FALSE(kept_machine(own_machine(), scratch / "", bench.meter()).is_new);
  EXPECT_EQ(bench.num_calls, 2);
}

// Rates that contradict each other are not kept, and not taken from a file that has them.
TEST(KeptMachine, IsNotKeptWithAPeakBelowWhatAMatmulReached) {
  const ScratchFolder scratch;
  Bench bench;
  bench.machine.core.sgemm_flops = 1.5e9;  // the first measurement finds a peak of 1e9, the second of 2e9
  const KeptMachine wrong = kept_machine(own_machine(), scratch / "", bench.meter());
  EXPECT_TRUE(wrong.path.empty());
  EXPECT_TRUE(std::filesystem::is_empty(scratch / ""));
  const KeptMachine right = kept_machine(own_machine(), scratch / "", bench.meter());
  EXPECT_TRUE(right.is_new);
  ASSERT_FALSE(right.path.empty());
  EXPECT_FALSE(kept_machine(own_machine(), scratch / "", bench.meter()).is_new);
  put(right.path, to_toml(wrong.host));  // by an older program
  EXPECT_TRUE(kept_machine(own_machine(), scratch / "", bench.meter()).is_new);
}

TEST(KeptMachine, IsMeasuredEachTimeWhereNothingCanBeKept) {
  const ScratchFolder scratch;
  put(scratch / "file", "no folder");
  Bench bench;
  for (const std::optional<std::filesystem::path>& folder :
       {std::optional(scratch / "file"), std::optional<std::filesystem::path>()}) {
    const KeptMachine machine = kept_machine(own_machine(), folder, bench.meter());
    EXPECT_TRUE(machine.is_new);
    EXPECT_TRUE(machine.path.empty());
  }
}

}  // namespace
}  // namespace echelon
