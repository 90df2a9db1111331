// The kernels of the host lane are those that the GPU's backend launches for the same program, as ops/gpu/gpu_kernels.h
// counts them. Units are traced one by one, so what is joined or paired across them counts once for each.
#include "predict/step/host_lane.h"

#include "blueprint/blueprint.h"
#include "comm/trace/trace_mesh.h"
#include "data/unread_batches.h"
#include "engine/layout_run.h"
#include "engine/rank_run.h"
#include "ops/gpu/gpu_kernels.h"
#include "spec/config/config_reader.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

/// Computes nothing, and counts from start() on.
class CountingOps final : public Ops {
 public:
  void start() { count_.emplace(); }
  void perform(const Operation& operation) override {
    if (count_) count_->add(operation);
  }
  void upload(Tensor /*out*/, const void* /*host*/) override { publish(); }
  void download(void* /*host*/, Tensor /*x*/) override { publish(); }
  void publish() override {
    if (count_) count_->flush();
  }
  void finish() override { publish(); }
  [[nodiscard]] const cuda::GpuKernelCount& count() const { return *count_; }

 private:
  std::optional<cuda::GpuKernelCount> count_;
};

RunConfig config_of(const std::string& model, std::int64_t layers, const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {
      "--model.preset=" + model,       fmt::format("--model.num_hidden_layers={}", layers),
      "--training.device=cuda",        "--training.dtype=bfloat16",
      "--training.seq_len=256",        "--training.global_batch_size=4",
      "--training.micro_batch_size=2", "--training.max_norm=1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return read_run_config({.path = "", .arguments = arguments, .read_model = {}});
}

/// Of the first rank.
cuda::GpuKernelCount kernels_of_program(const Blueprint& blueprint) {
  const RunConfig& config = blueprint.config();
  TraceMesh mesh(blueprint.mesh(), 0);
  CountingOps ops;
  RankRun run(blueprint, mesh, ops, bare_addresses(), nullptr, bare_addresses());
  ops.start();
  const UnreadBatches batches;
  run.step().run(ProgramKind::training, training_input(config, batches, 1, LossScaler(config)));
  ops.finish();
  return ops.count();
}

struct LaneKernels {
  std::int64_t all = 0, of_fills = 0, of_squares = 0, of_updates = 0, num_backwards = 0;
};

LaneKernels kernels_of_lane(const Blueprint& blueprint) {
  UnitTraces units(blueprint.config());
  const RankBlueprint rank = blueprint.rank(0, units);
  LaneKernels kernels;
  for (const Action& action : rank.program(ProgramKind::training)) {
    std::int64_t of_action = 0;
    const CallTrace& trace = rank.trace(ProgramKind::training).of(action);
    for (const OpRecord& operation : trace.operations()) of_action += operation.num_kernels;
    // A host that takes a second for each kernel, and a device that takes none.
    const IssueTime issue = issue_time(
        trace, {.kernel_seconds = 1}, [](const OpRecord&) { return 0; }, [](const CommRecord&) { return 0; });
    EXPECT_EQ(issue.issue_seconds, static_cast<double>(of_action));
    kernels.all += of_action;
    kernels.of_fills += action.kind == ActionKind::clear_gradients ? of_action : 0;
    kernels.of_updates += action.kind == ActionKind::update ? of_action : 0;
    for (const OpRecord& operation : trace.operations())
      kernels.of_squares += operation.kind == OpKind::sum_of_squares ? operation.num_kernels : 0;
    kernels.num_backwards += action.kind == ActionKind::backward ? 1 : 0;
  }
  return kernels;
}

TEST(CountedKernels, OfTheLaneAreThoseOfTheBackend) {
  for (const char* model : {"gpt2-124m", "llama-10m"})
    for (const std::int64_t layers : {1, 3})
      for (const std::vector<std::string>& more :
           {std::vector<std::string>(), {"--training.recompute=full"}, {"--training.dtype=float32"}}) {
        SCOPED_TRACE(fmt::format("{} {} {}", model, layers, fmt::join(more, " ")));
        const Blueprint blueprint(config_of(model, layers, more));
        const cuda::GpuKernelCount whole = kernels_of_program(blueprint);
        const LaneKernels lane = kernels_of_lane(blueprint);
        // Across units the backend joins fills, sums of squares and updates; and it computes a norm that a backward
        // pass recomputes with the gradient of the next unit's.
        const auto across = [&](std::int64_t of_units, OpKind kind) { return of_units - whole.of(kind).kernels; };
        const std::int64_t joined = across(lane.of_fills, OpKind::fill) +
                                    across(lane.of_squares, OpKind::sum_of_squares) +
                                    across(lane.of_updates, OpKind::adamw),
                           paired =
                               (blueprint.config().training.recompute == whole_block ? 1 : layers) * lane.num_backwards;
        EXPECT_EQ(lane.all - joined - paired, whole.total().kernels);
        EXPECT_LT(lane.all, 1.25 * static_cast<double>(whole.total().kernels));
      }
}

}  // namespace
}  // namespace echelon
