// Ranks that share a GPU, and ranks with one each: what every transport must do, on emulated devices.
#include "comm/conformance.h"
#include "comm/numbers.h"
#include "cuda/gpu_ranks.h"

namespace echelon {
namespace {

/// Emulated devices are slow: of the lines of ranks that a test tries, the short ones will do, if it has any. The bytes
/// sent are checked in parity_test.cpp.
void conform(const conformance::Requirement& requirement, RunGpuRanks& run) {
  if (requirement.test == conformance::large_buffers ||
      requirement.test == conformance::bytes_sent_are_the_closed_forms)
    GTEST_SKIP() << "slow";
  const bool has_short_ones = requirement.test != conformance::two_runs_give_the_same_bits;
  requirement.test([&](const MeshShape& shape, const std::function<void(Mesh&)>& body) {
    const bool is_line = shape == conformance::line(shape.num_ranks());
    if (!is_line || !has_short_ones || shape.num_ranks() <= 4) run(shape, 60, body);
  });
}

class GpuTransport : public ::testing::TestWithParam<conformance::Requirement> {};
TEST_P(GpuTransport, OfASharedGpuConforms) { conform(GetParam(), run_on_one_gpu); }
TEST_P(GpuTransport, OfNcclConforms) { conform(GetParam(), run_on_own_gpus); }
INSTANTIATE_TEST_SUITE_P(Comm, GpuTransport, ::testing::ValuesIn(conformance::requirements),
                         conformance::name_of_requirement);

}  // namespace
}  // namespace echelon
