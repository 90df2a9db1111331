// Files that describe a machine, and the steps that a config names for a trace.
#include "spec/host_spec.h"

#include "base/error.h"
#include "spec/run_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace echelon {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::string write(const std::string& text) {
  const std::string path = (std::filesystem::path(testing::TempDir()) / "echelon-machine.toml").string();
  std::ofstream(path) << text;
  return path;
}

HostSpec example() {
  HostSpec machine;
  machine.processor = "some processor";
  machine.num_cores = 2;
  machine.memory_bytes = std::int64_t{24} << 30;
  machine.device = {.float32_flops = 2e11, .float64_flops = 1e11, .copy_bandwidth = 8e10, .triad_bandwidth = 7e10, .read_bandwidth = 6e10};
  machine.core = {.float32_flops = 1e11, .sgemm_flops = 9.5e10};
  machine.all_reduce_latency_seconds = 2e-6;
  machine.all_reduce_bandwidth = 5e9;
  return machine;
}

TEST(HostSpec, IsReadAsItWasWritten) { EXPECT_EQ(read_host(write(to_toml(example()))), example()); }

TEST(HostSpec, MistakesAreNamed) {
  std::string text = to_toml(example());
  const auto with = [&](const std::string& from, const std::string& to) { return write(std::string(text).replace(text.find(from), from.size(), to)); };
  EXPECT_THAT([&] { (void)read_host(with("read_bandwidth", "reed_bandwidth")); },
              ThrowsMessage<Error>(HasSubstr("there is no key device.reed_bandwidth; nearest: device.read_bandwidth")));
  EXPECT_THAT([&] { (void)read_host(with("num_cores = 2\n", "")); }, ThrowsMessage<Error>(HasSubstr("machine.num_cores is missing")));
  EXPECT_THAT([&] { (void)read_host(with("num_cores = 2", "num_cores = -2")); }, ThrowsMessage<Error>(HasSubstr("machine.num_cores = -2 is below 0")));
  EXPECT_THAT([&] { (void)read_host(with("num_cores = 2", "num_cores = \"two\"")); }, ThrowsMessage<Error>(HasSubstr("machine.num_cores is no number")));
  EXPECT_THAT([] { (void)read_host("nowhere.toml"); }, ThrowsMessage<Error>(AllOf(HasSubstr("'nowhere.toml'"), HasSubstr("echelon bench"))));
}

TEST(TracedSteps, AreARangeOrAStep) {
  EXPECT_EQ(parse_traced_steps("steps 3-5"), (StepRange{3, 5}));
  EXPECT_EQ(parse_traced_steps("3-5"), (StepRange{3, 5}));
  EXPECT_EQ(parse_traced_steps("step 4"), (StepRange{4, 4}));
  EXPECT_FALSE(parse_traced_steps("").contains(1));
  for (const char* wrong : {"steps", "steps 0-3", "some", "3-", "-3", "3-x", "3 - 5"})
    EXPECT_THAT([&] { (void)parse_traced_steps(wrong); }, ThrowsMessage<Error>(AllOf(HasSubstr("metrics.trace"), HasSubstr("nearest")))) << wrong;
  EXPECT_THAT([] { (void)parse_traced_steps("5-3"); }, ThrowsMessage<Error>(HasSubstr("nearest: 'steps 3-5'")));
  EXPECT_THAT([] { (void)parse_traced_steps("steps 1-101"); }, ThrowsMessage<Error>(HasSubstr("nearest: 'steps 1-100'")));
}

}  // namespace
}  // namespace echelon
