// Where CPUs keep sums of dq between blocks of keys: in the plan, where the sequence is long and dq is narrow.
#include "comm/trace/trace_mesh.h"
#include "nn/bench.h"
#include "nn/models.h"

#include <gtest/gtest.h>

namespace echelon::test {
namespace {

struct Taken {
  std::int64_t sums = 0, workspace = 0;
};

/// Without data: the bytes of a block's gradients of attention.
Taken taken(DType dtype, std::int64_t seq_len, bool gives) {
  class RecordedOps final : public TraceOps {
   public:
    explicit RecordedOps(std::int64_t& sums) : sums_(sums) {}
    void perform(const Operation& operation) override {
      if (const auto* args = operation.get_if<AttentionBackwardArgs>())
        sums_ = args->dq_sums.exists() ? args->dq_sums.num_bytes() : 0;
      TraceOps::perform(operation);
    }

   private:
    std::int64_t& sums_;
  };
  LayerOptions options = one_rank(small_llama(), 1, seq_len);
  options.dtype = dtype;
  options.grad_dtype = DType::float32;
  options.device.gives_dq_sums = gives;
  Stage stage(options, {.num_layers = 1});
  const Tables tables(options);
  TraceMesh mesh(MeshShape(), 0);
  Taken taken;
  RecordedOps ops(taken.sums);
  taken.workspace = measure(passes_of(stage), options, mesh, BackwardKind::fused, ops).workspace;
  return taken;
}

TEST(DqSums, ArePlannedForLongSequencesOfNarrowNumbersAlone) {
  constexpr std::int64_t T = attention_keys_at_once + 100, bytes = T * 4 * 6 * 4;  // 4 heads of 6 in float32
  const Taken with = taken(DType::bfloat16, T, true), without = taken(DType::bfloat16, T, false);
  EXPECT_EQ(with.sums, bytes);
  EXPECT_GE(with.workspace, without.workspace);
  EXPECT_EQ(without.sums, 0);
  EXPECT_EQ(taken(DType::float32, T, true).sums, 0);
  EXPECT_EQ(taken(DType::bfloat16, attention_keys_at_once, true).sums, 0);
}

}  // namespace
}  // namespace echelon::test
