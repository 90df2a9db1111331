// Runs the tests in every process of an MPI job. Rank 0 tells about them; the others speak only of what fails.
#include "comm/launch_environment.h"
#include "comm/mpi/processes.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

namespace echelon {
namespace {

LaunchEnvironment launched() {
  return read_launch_environment([](const char* name) -> const char* { return std::getenv(name); })
      .value_or(LaunchEnvironment());
}

class FailuresOnly final : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d: %s:%d: %s\n", process_rank(), result.file_name(), result.line_number(),
                 result.summary());
  }
};

}  // namespace

int process_rank() { return launched().rank; }
int num_processes() { return launched().size; }

}  // namespace echelon

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (echelon::process_rank() != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new echelon::FailuresOnly);  // gtest owns it
  }
  return RUN_ALL_TESTS();
}
