#include "verify/context_layout.h"

#include "data/masked_batches.h"

#include <gmock/gmock.h>

namespace echelon::testing {

RunConfig context_config(const ContextLayout& layout) {
  RunConfig config;
  ModelSpec& model = config.model;
  model = family_defaults(layout.family);
  model.num_attention_heads = 4;
  model.num_key_value_heads = layout.family == Family::gpt2 ? 4 : layout.kv_heads;
  model.head_dim = 4;
  model.hidden_size = 16;
  model.num_hidden_layers = 2;
  model.intermediate_size = 23;
  model.vocab_size = 41;
  model.max_position_embeddings = 32;
  model.initializer_range = 0.15;
  config.data.reset_attention_mask = layout.documents;
  config.data.reset_position_ids = layout.positions;
  model.sliding_window = layout.window;
  model.max_window_layers = layout.window > 0 ? 1 : 0;
  config.training.steps = 3;
  config.training.seq_len = layout.seq_len;
  config.training.micro_batch_size = layout.micro_batch_size;
  config.training.global_batch_size = layout.micro_batch_size * layout.microbatches * layout.replicate * layout.shard;
  config.training.dtype = DType::float64;
  config.training.recompute = layout.recompute;
  config.optimizer.lr = 1e-2;
  config.optimizer.eps = 1e-7;
  ParallelConfig& p = config.parallelism;
  p.data_parallel_replicate_degree = layout.replicate;
  p.data_parallel_shard_degree = layout.shard;
  p.tensor_parallel_degree = layout.tp;
  p.sequence_parallel = layout.sequence_parallel;
  p.pipeline_parallel_degree = layout.pp;
  p.pipeline_parallel_schedule = layout.schedule;
  p.context_parallel_degree = layout.cp;
  p.context_parallel_load_balancer = layout.balancer;
  p.context_parallel_method = layout.method;
  p.context_parallel_ulysses_degree = layout.ulysses;
  p.zero_level = layout.zero;
  return config;
}

const BatchSource& context_tokens() {
  static const FormulaTokens tokens(1, 41);
  return tokens;
}

Verdict context_verdict(const ContextLayout& layout, const Interpose& interpose) {
  static const UnevenTargets uneven_targets(context_tokens(), 1);
  return verify(context_config(layout), uneven_targets, {.num_steps = 2, .interpose = interpose});
}

void PrintTo(const PlantedInContext& planted, std::ostream* out) { *out << planted.name; }

void expect_named(const PlantedInContext& planted) {
  const Verdict verdict = context_verdict(planted.layout, grow(planted.seed));
  ASSERT_FALSE(verdict.is_equal());
  const Finding& finding = verdict.diagnosis->finding;
  SCOPED_TRACE(verdict.diagnosis->sentence());
  ::testing::Test::RecordProperty("sentence", verdict.diagnosis->sentence());
  EXPECT_EQ(name_of(finding.kind), name_of(planted.kind));
  EXPECT_EQ(finding.axis, planted.axis);
  EXPECT_NE(finding.tensor.find(planted.tensor), std::string::npos) << finding.tensor;
  EXPECT_NE(finding.evidence.find(planted.evidence), std::string::npos) << finding.evidence;
  // Of a fault over several axes, the others keep their part.
  if (planted.axis == "cp") {
    EXPECT_THAT(verdict.diagnosis->gone_without, ::testing::Contains("cp"));
  }
}

}  // namespace echelon::testing
