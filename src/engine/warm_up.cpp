#include "engine/warm_up.h"

#include "comm/trace/trace_mesh.h"
#include "data/batch_source.h"
#include "data/masked_batches.h"
#include "engine/layout_run.h"

#include <algorithm>

namespace echelon {
namespace {

/// Two documents in each sequence, or one.
class HalvedTokens final : public BatchSource {
 public:
  HalvedTokens(const RunConfig& config, bool is_halved)
      : tokens_(config.data.seed, config.model.vocab_size), is_halved_(is_halved) {}
  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override {
    tokens_.read(sequence, seq_len, tokens, targets);
  }
  void read_document_starts(std::int64_t /*sequence*/, std::int64_t seq_len, std::int32_t* starts) const override {
    std::fill_n(starts, seq_len, 0);
    const std::int64_t half = is_halved_ ? seq_len / 2 : seq_len;
    std::fill(starts + half, starts + seq_len, static_cast<std::int32_t>(half));
  }

 private:
  FormulaTokens tokens_;
  bool is_halved_;
};

}  // namespace

void warm_up(const Blueprint& blueprint, RankDevice& device) {
  const RunConfig& config = blueprint.config();
  TraceMesh alone(blueprint.mesh(), device.mesh().rank());
  RankRun run(blueprint, alone, device.ops(), device.memory());
  run.model().refresh_masters(device.ops());  // weights are zeros
  // Sequences with and without a boundary between documents may need other kernels (RankBatch::write_shape).
  for (const bool is_halved : {false, true}) {
    if (is_halved && !config.data.reset_attention_mask) continue;
    const HalvedTokens batches(config, is_halved);
    (void)run.step().run(ProgramKind::training, training_input(config, batches, 1, LossScaler(config)));
    (void)run.step().run(ProgramKind::evaluation, {.batches = &batches, .adamw = {}});
  }
  device.ops().finish();
}

}  // namespace echelon
