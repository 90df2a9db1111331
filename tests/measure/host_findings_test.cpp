// What echelon bench says about its own measurement.
#include "measure/host_findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using testing::HasSubstr;
using testing::Not;

HostFindings quiet() {
  HostFindings findings;
  findings.topology = {.cores = {{0, 2}, {1, 3}}, .caches = {}, .memory_nodes = {}};
  findings.scaling = {{.num_cores = 2, .multiply_adds = {1.99, 0.01}, .matmul = {1.94, 0.01}},
                      {.num_cores = 2, .threads_per_core = 2, .multiply_adds = {2.04, 0.01}}};
  return findings;
}

TEST(HostFindings, OfAQuietMachine) {
  const std::string text = to_text(quiet());
  EXPECT_THAT(text, HasSubstr("2 cores, 2 threads each\n"));
  EXPECT_THAT(text, HasSubstr("matmul float32 on 2 cores: 1.94 x one core (multiply-adds: 1.99 x)\n"));
  EXPECT_THAT(text, HasSubstr("multiply-adds float32 on 2 threads of each of 2 cores: 2.04 x one thread\n"));
  EXPECT_THAT(text, HasSubstr("other processes used 0 % of the cores' time; half of the 5 rounds of every rate agree"));
}

TEST(HostFindings, NameUnsureRatesAndErrorsOfProbes) {
  HostSpec machine;
  machine.core.float32_flops = 44e9;
  machine.core.sgemm_flops = 69e9;
  machine.core_spread.sgemm_flops = 0.06;
  machine.device_spread.read_bandwidth = 0.04;
  machine.all_reduce_latency_spread = 0.2;
  const HostFindings findings = findings_of(machine, 0, {});
  EXPECT_THAT(findings.unsure, testing::ElementsAre("core sgemm_flops", "threads all_reduce_latency"));
  EXPECT_THAT(findings.errors, testing::ElementsAre(HasSubstr("reaches 69.0 GFLOP/s, but the probe of its peak 44.0")));
  EXPECT_EQ(nlohmann::json(to_json(findings))["probe_errors"].size(), 1U);
  EXPECT_THAT(rates_text(machine), HasSubstr("69.0    6.0 %"));
}

// On a busy machine, bench says that it is busy and which rates are unsure.
TEST(HostFindings, OfABusyMachine) {
  HostFindings findings = quiet();
  findings.share_of_others = 0.43;
  findings.unsure = {"core float32_flops", "device sgemm_flops"};
  findings.scaling.front().matmul.spread = 0.3;
  const std::string text = to_text(findings);
  EXPECT_THAT(text, HasSubstr("used 43 % of the cores' time: the machine is busy"));
  EXPECT_THAT(text, HasSubstr("unsure, since rounds differ by more than 5 %: core float32_flops, device sgemm_flops"));
  EXPECT_THAT(text, HasSubstr("1.94 x one core, unsure: turns differ by 30 % (multiply-adds: 1.99 x)"));
  EXPECT_THAT(text, Not(HasSubstr("of every rate agree")));
  const nlohmann::json json = to_json(findings);
  EXPECT_EQ(json["is_busy"], true);
  EXPECT_EQ(json["unsure"].size(), 2U);
  EXPECT_EQ(json["topology"]["cores"], (std::vector<std::string>{"0,2", "1,3"}));
}

// Neither the system's times nor multiply-adds in registers show it.
TEST(HostFindings, OfCoresThatOthersUseAsHyperthreads) {
  HostFindings findings = quiet();
  EXPECT_THAT(to_text(findings), Not(HasSubstr("hyperthreads")));
  findings.cycles_of_short_loop = 2.1;
  EXPECT_THAT(to_text(findings), HasSubstr("a loop that does nothing takes 2.1 cycles an iteration instead of 1"));
  EXPECT_FALSE(findings.is_busy());
  EXPECT_EQ(nlohmann::json(to_json(findings))["shares_cores"], true);
}

}  // namespace
}  // namespace echelon
