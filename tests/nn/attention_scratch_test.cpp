// What attention's gradients may scribble in where the device wants it: as much as the formula says, planned, and
// nobody else's.
#include "comm/trace/trace_mesh.h"
#include "nn/bench.h"
#include "nn/models.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace echelon::test {
namespace {

class ScribblingOps final : public ReferenceOps {
 public:
  explicit ScribblingOps(std::int64_t& scratch_bytes) : scratch_bytes_(scratch_bytes) {}
  void perform(const Operation& operation) override {
    const auto* gradients = operation.get_if<AttentionBackwardArgs>();
    if (gradients == nullptr) return ReferenceOps::perform(operation);
    const Tensor scratch = gradients->scratch;
    scratch_bytes_ = scratch.exists() ? scratch.num_bytes() : 0;
    std::fill_n(scratch.data, scratch_bytes_, std::byte{0xff});
    ReferenceOps::perform(operation);
    std::fill_n(scratch.data, scratch_bytes_, std::byte{0xff});
  }

 private:
  std::int64_t& scratch_bytes_;
};

struct ScratchRun {
  std::vector<std::vector<double>> numbers;
  std::int64_t scratch_bytes = 0, workspace_bytes = 0;
};

ScratchRun run(const ModelSpec& model, BackwardKind kind, bool gives_scratch) {
  LayerOptions options = one_rank(model);
  options.device.gives_attention_scratch = gives_scratch;
  Stage stage(options, {.num_layers = 1});
  const Tables tables(options);
  stage.bind_rope_tables(*make_reference_ops(), tables.cos, tables.sin);
  LonelyMesh mesh;
  TraceMesh trace_mesh(MeshShape(), 0);
  ScratchRun run;
  Bench bench(passes_of(stage), options, mesh, trace_mesh, std::make_unique<ScribblingOps>(run.scratch_bytes));
  EXPECT_EQ(bench.run(kind), bench.measured(kind)) << "a run takes what its trace says";
  run.workspace_bytes = bench.measured(kind).workspace;
  run.numbers.push_back(numbers_of(bench.dx()));
  for (const Param* param : bench.params()) run.numbers.push_back(numbers_of(param->grad));
  return run;
}

TEST(AttentionScratch, IsGivenWhereItIsWantedAndIsNobodyElses) {
  // 2 sequences of 5 tokens, which are one tile of 128, 4 heads of 6: dq and the row sums in float32; of shared kv
  // heads dk and dv, here in float64.
  constexpr std::int64_t rows = 2 * 4 * 128, of_queries = rows * (6 + 1) * 4, of_keys = 2 * rows * 6 * 8,
                         of_a_plan = 1 << 20;
  for (const BackwardKind kind : {BackwardKind::fused, BackwardKind::split}) {
    for (const ModelSpec& model : {small_llama(), small_gpt2()}) {
      const ScratchRun without = run(model, kind, false), with = run(model, kind, true);
      EXPECT_EQ(without.scratch_bytes, 0);
      EXPECT_EQ(with.scratch_bytes, of_queries + of_a_plan + (model.num_key_value_heads == 4 ? 0 : of_keys));
      EXPECT_GT(with.workspace_bytes, with.scratch_bytes);
      EXPECT_LT(without.workspace_bytes, with.scratch_bytes);
      EXPECT_EQ(with.numbers, without.numbers);
    }
  }
}

}  // namespace
}  // namespace echelon::test
