// Processes that share a sequence, of which rank 1 fails in the middle of attention; `context_failures METHOD HOW`.
// tests/engine/process_failure_test.cpp looks at how the job ends.
#include "base/error.h"
#include "comm/mpi/mpi_world.h"
#include "engine/faulty_attention.h"
#include "spec/config/run_choices.h"
#include "spec/groups.h"

#include <csignal>
#include <map>
#include <string>
#include <thread>

namespace echelon::testing {
namespace {

struct Failing {
  double timeout_seconds = 0;
  std::function<void()> act;
};

const std::map<std::string, Failing> ways = {
    {"dies", {60, [] { throw Failure("the device is gone"); }}},
    {"sleeps", {4, [] { std::this_thread::sleep_for(std::chrono::minutes(2)); }}},
    // Not for one signal alone: whoever looks after a machine may send SIGCONT to all.
    {"stops",
     {4,
      [] {
        for (;;) std::raise(SIGSTOP);
      }}},
};

}  // namespace
}  // namespace echelon::testing

int main(int argc, char** argv) {
  using namespace echelon;
  const ContextMethod method = parse_exactly<ContextMethod>("method", argc > 1 ? argv[1] : "");
  const testing::Failing& way = testing::ways.at(argc > 2 ? argv[2] : "");
  const Blueprint blueprint(testing::context_config(method));
  run_mpi_ranks(blueprint.mesh(), {.timeout_seconds = way.timeout_seconds}, [&](Mesh& mesh) {
    mesh.comm(world_group).barrier().wait();
    testing::run_faulty_step(blueprint, mesh, {OpKind::attention, testing::first_of_layer_1(method), way.act});
  });
}
