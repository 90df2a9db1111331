#include "measure/kept_machine.h"

#include "checkpoint/scratch_folder.h"

#include <gtest/gtest.h>

#include <functional>

namespace echelon {
namespace {

HostSpec own_machine() { return {.processor = "A Processor (TM) 9", .num_cores = 3, .memory_bytes = 1 << 20}; }

struct Bench {
  int num_calls = 0;
  HostSpec machine = own_machine();
  HostSpec operator()() {
    ++num_calls;
    machine.core.float32_flops = 1e9 * num_calls;
    return machine;
  }
};

TEST(KeptMachine, IsMeasuredOnce) {
  const ScratchFolder scratch;
  const std::filesystem::path folder = scratch / "deeper" / "echelon";
  Bench bench;
  const KeptMachine first = kept_machine(own_machine(), folder, std::ref(bench));
  EXPECT_TRUE(first.is_new);
  EXPECT_EQ(first.path, folder / "a-processor-tm-9-3-cores.toml");
  const KeptMachine again = kept_machine(own_machine(), folder, std::ref(bench));
  EXPECT_FALSE(again.is_new);
  EXPECT_EQ(again.host, first.host);
  EXPECT_EQ(bench.num_calls, 1);
}

TEST(KeptMachine, IsMeasuredAgainWhereWhatWasKeptIsAnothersOrBroken) {
  const ScratchFolder scratch;
  Bench bench;
  const std::filesystem::path path = kept_machine(own_machine(), scratch / "", std::ref(bench)).path;
  HostSpec larger = own_machine();
  larger.memory_bytes *= 2;
  bench.machine = larger;
  EXPECT_TRUE(kept_machine(larger, scratch / "", std::ref(bench)).is_new);
  EXPECT_FALSE(kept_machine(larger, scratch / "", std::ref(bench)).is_new);
  put(path, "[machine]\nprocessor = 'A Proc");
  EXPECT_TRUE(kept_machine(larger, scratch / "", std::ref(bench)).is_new);
  EXPECT_EQ(bench.num_calls, 3);
}

TEST(KeptMachine, IsMeasuredEachTimeWhereNothingCanBeKept) {
  const ScratchFolder scratch;
  put(scratch / "file", "no folder");
  Bench bench;
  for (const std::optional<std::filesystem::path>& folder :
       {std::optional(scratch / "file"), std::optional<std::filesystem::path>()}) {
    const KeptMachine machine = kept_machine(own_machine(), folder, std::ref(bench));
    EXPECT_TRUE(machine.is_new);
    EXPECT_TRUE(machine.path.empty());
  }
}

}  // namespace
}  // namespace echelon
