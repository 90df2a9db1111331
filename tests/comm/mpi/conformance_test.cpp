// The MPI transport passes the conformance suite. Started by mpirun: every process runs every test, and takes part
// where the mesh has its rank.
#include "comm/conformance.h"
#include "comm/mpi/mpi_world.h"
#include "comm/mpi/processes.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

/// Runs a test of the suite on as many processes as its meshes want; those of larger meshes are left to a larger job.
/// Through MPI alone, reading one another's memory, and both side by side: as if every two ranks were on a machine of
/// their own.
void conform(const std::function<void(const conformance::RunRanks&)>& test) {
  int num_runs = 0;
  const std::function<bool(int, int)> ways[] = {[](int, int) { return false; }, [](int, int) { return true; },
                                                [](int a, int b) { return a / 2 == b / 2; }};
  for (const auto& reads_memory : ways)
    test([&](const MeshShape& shape, const std::function<void(Mesh&)>& body) {
      if (shape.num_ranks() > num_processes()) return;
      ++num_runs;
      run_first_mpi_ranks(shape, {.timeout_seconds = 120, .reads_memory = reads_memory}, body);
    });
  if (num_runs == 0) GTEST_SKIP() << "needs more than " << num_processes() << " processes";
}

class MpiTransport : public testing::TestWithParam<conformance::Requirement> {};
TEST_P(MpiTransport, Conforms) { conform(GetParam().test); }
INSTANTIATE_TEST_SUITE_P(Comm, MpiTransport, testing::ValuesIn(conformance::requirements),
                         conformance::name_of_requirement);

}  // namespace
}  // namespace echelon
