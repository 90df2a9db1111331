// Layouts with as many ranks as there are processes equal one rank, under mpirun: the same layouts, locks and
// tolerances as with ranks as threads.
#include "comm/mpi/mpi_world.h"
#include "comm/mpi/processes.h"
#include "parity/forced_router.h"
#include "parity/layout.h"
#include "parity/locks.h"
#include "parity/training_run.h"
#include "report/system_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

namespace echelon::testing {
namespace {

bool has_a_rank_per_process(const Layout& layout) {
  return layout.replicate * layout.shard * layout.cp * layout.tp * layout.pp == num_processes();
}

/// The rows, of those of schedules every fifth, and all of the grid; of its many layouts with eight ranks every sixth.
/// Of the methods of context parallelism on eight ranks every third.
std::vector<Layout> layouts() {
  std::vector<Layout> chosen;
  std::ranges::copy_if(rows(), std::back_inserter(chosen), has_a_rank_per_process);
  std::ranges::copy_if(context_rows(), std::back_inserter(chosen), has_a_rank_per_process);
  std::ranges::copy_if(document_rows(), std::back_inserter(chosen), has_a_rank_per_process);
  std::ranges::copy_if(window_rows(), std::back_inserter(chosen), has_a_rank_per_process);
  std::ranges::copy_if(expert_parallel_rows(), std::back_inserter(chosen), has_a_rank_per_process);
  int index = 0;
  for (const Layout& layout : context_method_rows())
    if (has_a_rank_per_process(layout) && index++ % (num_processes() < 8 ? 1 : 3) == 0) chosen.push_back(layout);
  index = 0;
  for (const Layout& layout : schedule_rows())
    if (has_a_rank_per_process(layout) && index++ % 5 == 0) chosen.push_back(layout);
  index = 0;
  for (const Layout& layout : grid())
    if (has_a_rank_per_process(layout) && index++ % (num_processes() < 8 ? 1 : 6) == 0) chosen.push_back(layout);
  return chosen;
}

/// Every number of the tensor that the processes have, and how many of them have it: theirs are added where only one
/// has any.
struct Merged {
  std::vector<double> numbers, counts;
};

Merged merged(const TensorCollection& own, const std::string& name, std::size_t size, Comm& world) {
  Merged whole = {std::vector<double>(size), std::vector<double>(size)};
  if (const auto found = own.tensors().find(name); found != own.tensors().end()) {
    EXPECT_EQ(found->second.size(), size) << name;
    whole.numbers = found->second;
    whole.counts.assign(own.counts().at(name).begin(), own.counts().at(name).end());
  }
  for (std::vector<double>* const x : {&whole.numbers, &whole.counts})
    world.all_reduce({x->data(), DType::float64, {static_cast<std::int64_t>(size)}}, ReduceOp::sum).wait();
  return whole;
}

void expect_equal(const TensorCollection& own, const TensorCollection& expected, double floor, Comm& world) {
  for (const auto& [name, numbers] : expected.tensors()) {
    const Merged whole = merged(own, name, numbers.size(), world);
    double largest = floor, error = 0;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      ASSERT_EQ(whole.counts[i], 1) << name << ": how often number " << i << " came";
      largest = std::max(largest, std::abs(numbers[i]));
      const double difference = std::abs(whole.numbers[i] - numbers[i]);
      if (!(difference <= error)) error = difference;  // a NaN counts as different
    }
    EXPECT_LE(error / largest, 1e-9) << name;
  }
}

class MpiParity : public ::testing::TestWithParam<Layout> {};

TEST_P(MpiParity, EqualsOneRank) {
  const RunConfig config = config_of(GetParam());
  const auto run_processes = [](const MeshShape& shape, const std::function<void(Mesh&)>& body) {
    run_mpi_ranks(shape, {.timeout_seconds = 120}, body);
  };
  const auto actual = run_training(
      config,
      {.at_end =
           [&](const RankView& rank) { expect_locks_hold(rank, {.training = config.training.steps, .evaluation = 1}); },
       .run_ranks = run_processes});
  const auto expected = run_training(one_rank(config));
  if (process_rank() == 0) {
    ASSERT_EQ(actual->losses.size(), expected->losses.size());
    for (std::size_t step = 0; step < expected->losses.size(); ++step) {
      EXPECT_NEAR(actual->losses[step], expected->losses[step], 1e-11 * std::abs(expected->losses[step]))
          << "loss of step " << step + 1;
      EXPECT_NEAR(actual->grad_norms[step], expected->grad_norms[step], 1e-11 * std::abs(expected->grad_norms[step]))
          << "norm of step " << step + 1;
    }
    EXPECT_NEAR(actual->validation_loss, expected->validation_loss, 1e-11 * std::abs(expected->validation_loss));
  }
  run_processes(config.mesh_shape(), [&](Mesh& mesh) {
    expect_equal(actual->first_gradients, expected->first_gradients, root_mean_square(expected->first_gradients),
                 mesh.comm({world_axes}));
    expect_equal(actual->values, expected->values, config.optimizer.lr, mesh.comm({world_axes}));
  });
}

// The bits of ranks that are threads: sums are formed in the same order.
TEST_P(MpiParity, HasTheBitsOfThreads) {
  RunConfig config = config_of(GetParam());
  config.training.dtype = DType::float32;
  config.training.steps = 3;
  const auto on_processes =
      run_training(config, {.run_ranks = [](const MeshShape& shape, const std::function<void(Mesh&)>& body) {
                     run_mpi_ranks(shape, {}, body);
                   }});
  const auto on_threads = run_training(config);
  if (process_rank() == 0) {
    EXPECT_EQ(on_processes->losses, on_threads->losses);
    EXPECT_EQ(on_processes->grad_norms, on_threads->grad_norms);
  }
  for (const auto& [name, numbers] : on_processes->values.tensors())
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const bool is_here = on_processes->values.counts().at(name)[i] > 0;
      ASSERT_EQ(numbers[i], is_here ? on_threads->values.tensors().at(name)[i] : 0.0) << name << " " << i;
    }
}

TEST(MpiLayouts, OfEightProcessesHaveSixWithExpertsOverThem) {
  if (num_processes() != 8) GTEST_SKIP() << "for eight processes";
  EXPECT_GE(std::ranges::count_if(layouts(), [](const Layout& layout) { return layout.ep > 1; }), 6);
}

INSTANTIATE_TEST_SUITE_P(Layouts, MpiParity, ::testing::ValuesIn(layouts()),
                         [](const auto& layout) { return name_of(layout.param); });

// Memory of a process whose rank has all rows, of those that could come 8 MiB for each buffer: that of even loads.
TEST(ExpertMemory, OfAProcessDoesNotDependOnTheRouter) {
  if (num_processes() != 8) GTEST_SKIP() << "for eight processes";
  constexpr std::int64_t num_experts = 16;
  RunConfig config = config_of({.shard = 8, .microbatches = 1, .seq_len = 512, .experts = num_experts, .ep = 8});
  config.model.mixture.num_experts_per_tok = 1;
  config.model.hidden_size = config.model.mixture.moe_intermediate_size = 128;
  config.model.max_position_embeddings = 512;
  config.training.micro_batch_size = 1;
  config.training.global_batch_size = 8;
  config.training.steps = config.lr_scheduler.warmup_steps = 1;
  const auto peak_with = [&](const Choice& choice) {
    (void)run_training(config, {.interpose = forced(choice, config.training.seq_len),
                                .run_ranks = [](const MeshShape& shape, const std::function<void(Mesh&)>& body) {
                                  run_mpi_ranks(shape, {.timeout_seconds = 120}, body);
                                }});
    return process_memory().peak_bytes;
  };
  for (const double bound : {0.3, 1.0, 100.0}) {  // growing, as the peak of a process does
    config.moe.dispatch_bound = bound;
    const std::int64_t even = peak_with([](std::int64_t n, std::int64_t) { return static_cast<std::int32_t>(n % 16); }),
                       allowed = std::max<std::int64_t>(even / 50, 16 << 20);
    for (const std::int32_t expert : {5, 14})
      EXPECT_LE(peak_with([=](std::int64_t, std::int64_t) { return expert; }) - even, allowed)
          << "all at " << expert << ", bound " << bound;
  }
}

}  // namespace
}  // namespace echelon::testing
