// Generation with caches gives the logits of a forward pass over the whole text.
#include "nn/decoder/decode.h"

#include "base/error.h"
#include "nn/bench.h"
#include "nn/models.h"
#include "ops/trace/trace_ops.h"

#include <gtest/gtest.h>

#include <cmath>

namespace echelon::test {
namespace {

constexpr std::int64_t B = 2, T = 7;

// A whole model with memory, and caches for it.
struct Generator {
  explicit Generator(const ModelSpec& model)
      : options(one_rank(model, B, T)),
        stage(options, whole_model),
        tables(options),
        bench(passes_of(stage), options, mesh, mesh) {
    stage.bind_rope_tables(bench.ops(), tables.cos, tables.sin);
    for (std::int64_t i = 0; i < model.num_hidden_layers; ++i) {
      const Tensor k = memory.take(options.dtype, kv_cache_sizes(options)),
                   v = memory.take(options.dtype, kv_cache_sizes(options));
      bench.ops().fill(k, std::nan(""));  // positions that were not decoded yet must not be read
      bench.ops().fill(v, std::nan(""));
      caches.push_back({k, v});
    }
    logits = memory.take(DType::float64, {B, model.vocab_size});
  }

  // The next `count` tokens of every sequence, from `first` on.
  std::vector<double> decode(std::int64_t first, std::int64_t count) {
    const Stack::Scope scope(memory);
    const std::vector<std::int32_t> all = random_batch(options).tokens;
    const Tensor tokens = memory.take(DType::int32, {B * count});
    for (std::int64_t b = 0; b < B; ++b)
      std::copy_n(all.begin() + b * T + first, count, tokens.as<std::int32_t>() + b * count);
    Context context = {bench.ops(), mesh, memory, {}};
    stage.decode(context,
                 {.tokens = tokens, .num_sequences = B, .first_position = first, .caches = caches, .logits = logits});
    return numbers_of(logits);
  }

  LayerOptions options;
  LonelyMesh mesh;
  Stage stage;
  Tables tables;
  Bench bench;
  Arena arena{1 << 20};
  Stack memory = arena.region(0, 1 << 20);
  std::vector<KvCache> caches;
  Tensor logits;
};

// The losses of a forward pass tell the logits: with a single target, loss = log sum exp(logits) - logits[target]. So
// softmaxes are compared, token by token.
std::vector<double> log_softmax_of_forward(const ModelSpec& model, std::int64_t position) {
  LayerOptions options = one_rank(model, B, T);
  if (model.sliding_window > 0) options.windows = {model.sliding_window};
  LonelyMesh mesh;
  Stage stage(options, whole_model);
  const Tables tables(options);
  std::vector<double> result;
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int32_t token = 0; token < model.vocab_size; ++token) {
      Batch batch = random_batch(options);
      std::fill(batch.targets.begin(), batch.targets.end(), ignored_target);
      batch.targets[static_cast<std::size_t>(b * T + position)] = token;
      for (std::int64_t i = 0; i < B * T && model.sliding_window > 0; ++i)
        batch.key_begin.push_back(
            static_cast<std::int32_t>(std::max<std::int64_t>(0, i % T - model.sliding_window + 1)));
      Bench bench(passes_of(stage), options, mesh, mesh);
      bench.set_batch(batch);
      stage.bind_rope_tables(bench.ops(), tables.cos, tables.sin);
      bench.forward();
      result.push_back(-bench.loss_sum());
    }
  }
  return result;
}

void expect_softmax(const std::vector<double>& logits, const std::vector<double>& expected, std::int64_t V) {
  ASSERT_EQ(logits.size(), expected.size());
  for (std::int64_t b = 0; b < B; ++b) {
    double sum = 0;
    for (std::int64_t j = 0; j < V; ++j) sum += std::exp(logits[static_cast<std::size_t>(b * V + j)]);
    for (std::int64_t j = 0; j < V; ++j) {
      const auto i = static_cast<std::size_t>(b * V + j);
      EXPECT_NEAR(logits[i] - std::log(sum), expected[i], 1e-12);
    }
  }
}

/// One layer that sees all, and one with a window.
ModelSpec small_windows(std::int64_t window) {
  ModelSpec model = small_llama();
  model.sliding_window = window;
  model.max_window_layers = 1;
  return model;
}

TEST(Decode, GivesTheLogitsOfAForwardPass) {
  for (const ModelSpec& model : {small_llama(), small_qwen(), small_gpt2(), small_mixture(), small_latents(),
                                 small_groups_of_experts(), small_windows(1), small_windows(2), small_windows(5)}) {
    Generator generator(model);
    expect_softmax(generator.decode(0, 3), log_softmax_of_forward(model, 2), model.vocab_size);  // the prompt
    expect_softmax(generator.decode(3, 1), log_softmax_of_forward(model, 3), model.vocab_size);  // token by token
    expect_softmax(generator.decode(4, 1), log_softmax_of_forward(model, 4), model.vocab_size);
    expect_softmax(generator.decode(5, 2), log_softmax_of_forward(model, 6), model.vocab_size);  // some at once
  }
}

TEST(Decode, GivesTheSameLogitsOfOtherMechanisms) {
  for (const ModelSpec& model : small_mechanisms()) {
    Generator generator(model);
    expect_softmax(generator.decode(0, 4), log_softmax_of_forward(model, 3), model.vocab_size);
    expect_softmax(generator.decode(4, 1), log_softmax_of_forward(model, 4), model.vocab_size);
    expect_softmax(generator.decode(5, 2), log_softmax_of_forward(model, 6), model.vocab_size);
  }
}

TEST(Decode, RefusesPositionsBeyondItsCaches) {
  Generator generator(small_llama());
  (void)generator.decode(0, T);
  EXPECT_THROW((void)generator.decode(T, 1), Error);
}

TEST(Decode, RunsWithoutData) {
  const LayerOptions options = one_rank(small_qwen(), B, T);
  Stage stage(options, whole_model);
  for (Param* param : passes_of(stage).params) param->value = {nullptr, options.dtype, param->local_sizes()};
  const KvCache cache = {{nullptr, options.dtype, kv_cache_sizes(options)},
                         {nullptr, options.dtype, kv_cache_sizes(options)}};
  const std::vector<KvCache> caches = {cache, cache};
  TraceOps ops;
  LonelyMesh mesh;
  Stack workspace;
  Context context = {ops, mesh, workspace, {}};
  stage.decode(context, {.tokens = {nullptr, DType::int32, {B}},
                         .num_sequences = B,
                         .first_position = 4,
                         .caches = caches,
                         .logits = {nullptr, DType::float64, {B, options.model.vocab_size}}});
  EXPECT_GT(workspace.peak_bytes(), 0);
  EXPECT_EQ(workspace.used_bytes(), 0);
  // Each weight's product once per new token: 2 flops per entry and token, without the embedding's table, and attention
  // over 5 positions.
  const ModelSpec& model = options.model;
  const std::int64_t heads_width = model.num_attention_heads * model.head_dim,
                     kv_width = model.num_key_value_heads * model.head_dim;
  const std::int64_t D = model.hidden_size;
  const std::int64_t entries =
      2 * (2 * D * heads_width + 2 * D * kv_width + 3 * D * model.intermediate_size) + D * model.vocab_size;
  std::int64_t product_flops = 0;
  for (const OpRecord& record : ops.records())
    if (record.kind == OpKind::matmul) product_flops += record.flops;
  EXPECT_EQ(product_flops, 2 * B * entries);
}

}  // namespace
}  // namespace echelon::test
