// Layouts whose attention the emulated cuDNN computes where the host knows that documents and rings have whole blocks
// or causal masks: how often it is asked, and that losses are those of our kernels.
#include "cuda/cuda_backend.h"
#include "cuda/emulated/runtime.h"
#include "parity/layout.h"
#include "parity/training_run.h"

#include <cudnn_frontend.h>
#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

constexpr std::int64_t steps_of_layouts = 2;

struct CudnnRun {
  std::unique_ptr<Trajectory> trajectory;
  std::int64_t num_runs = 0;
};

CudnnRun run_on_gpus(RunConfig config, AttentionKernels attention) {
  config.training.attention = attention;
  emulated::set_num_devices(config.mesh_shape().num_ranks());
  std::string reason;
  const std::unique_ptr<Backend> backend = cuda::make_cuda_backend(reason);
  const std::int64_t before = emulated::num_cudnn_runs();
  CudnnRun run = {.trajectory = run_training(config, {.backend = backend.get()})};
  run.num_runs = emulated::num_cudnn_runs() - before;
  emulated::set_num_devices(1);
  return run;
}

class CudnnLayouts : public ::testing::Test {
 protected:
  CudnnLayouts() { emulated::set_cudnn_version(92600); }
  ~CudnnLayouts() override { emulated::set_cudnn_version(0); }

  static RunConfig config_for(const Layout& layout) {
    RunConfig config = config_of(layout);
    config.training.dtype = DType::bfloat16;
    config.training.steps = steps_of_layouts;
    config.lr_scheduler.warmup_steps = 1;
    config.training.micro_batch_size = 1;
    config.training.global_batch_size = layout.microbatches;
    return config;
  }
  /// Executions of cuDNN's graphs, whose losses are compared with those of our kernels.
  static std::int64_t num_runs_of(const RunConfig& config) {
    const CudnnRun by_cudnn = run_on_gpus(config, AttentionKernels::automatic),
                   by_ours = run_on_gpus(config, AttentionKernels::own);
    EXPECT_EQ(by_ours.num_runs, 0);
    for (std::size_t step = 0; step < steps_of_layouts; ++step) {
      EXPECT_NEAR(by_cudnn.trajectory->losses[step], by_ours.trajectory->losses[step], 2e-3);
      EXPECT_NEAR(by_cudnn.trajectory->grad_norms[step], by_ours.trajectory->grad_norms[step],
                  0.02 * by_ours.trajectory->grad_norms[step]);
    }
    return by_cudnn.num_runs;
  }
};

// Forward and backward of two blocks on two ranks in the steps and the warm-up, forward in two evaluations.
TEST_F(CudnnLayouts, RingsComputeEveryBlock) {
  for (const LoadBalancer balancer : {LoadBalancer::headtail, LoadBalancer::striped}) {
    const Layout ring = {.microbatches = 1, .layers = 1, .cp = 2, .balancer = balancer, .seq_len = 16};
    EXPECT_EQ(num_runs_of(config_for(ring)), 2 * 2 * ((steps_of_layouts + 1) * 2 + 2));
  }
}

// Of the first eight sequences one has no boundary, and one of the four that are evaluated.
TEST_F(CudnnLayouts, DocumentsComputeSequencesWithoutABoundary) {
  RunConfig config = config_for({.microbatches = 4, .layers = 1, .documents = true, .seq_len = 16});
  EXPECT_EQ(num_runs_of(config), 2 + 1);
  config.training.cuda_graphs = true;
  EXPECT_EQ(num_runs_of(config), 0) << "a graph repeats the kernels of the batch that it was captured with";
}

}  // namespace
}  // namespace echelon::testing
