// Rows that are no tokens: their bytes in a plan against the widths of all tensors that have such rows, counted list by
// list, and against plans of fewer tokens.
#include "blueprint/padding_rows.h"

#include "blueprint/small_config.h"
#include "blueprint/step_summary.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace echelon::testing {
namespace {

using enum MemoryCategory;

struct Case {
  std::int64_t T = 131;
  ContextMethod method = ContextMethod::ring;
  LoadBalancer balancer = LoadBalancer::headtail;
  int tp = 1;
  bool is_float8 = false;
  std::int64_t B = 1;
};

RunConfig config_of(const Case& of) {
  RunConfig config = small_config();
  config.model.head_dim = 16;
  config.model.max_position_embeddings = config.training.seq_len = of.T;
  config.training.micro_batch_size = of.B;
  config.training.dtype = DType::bfloat16;
  if (of.is_float8) config.training.linear_dtype = LinearDType::float8;
  config.parallelism.context_parallel_degree = 4;
  config.parallelism.context_parallel_method = of.method;
  if (of.method == ContextMethod::ulysses_ring) config.parallelism.context_parallel_ulysses_degree = 2;
  config.parallelism.context_parallel_load_balancer = of.balancer;
  config.parallelism.tensor_parallel_degree = of.tp;
  config.parallelism.sequence_parallel = of.tp > 1;
  return config;
}

/// T_r by the definition: ceil(131 / 4) = 33, of which tp 2 divides 34 and float8 has 48, for two sequences 40.
std::int64_t rows_of(const Case& of) {
  const std::int64_t unit = std::lcm(std::int64_t{of.tp}, std::int64_t{of.is_float8 ? 16 : 1}),
                     multiple = unit / std::gcd(unit, of.B);
  return ((of.T + 3) / 4 + multiple - 1) / multiple * multiple;
}

std::int64_t tokens_of(const RunConfig& config, int cp_rank) {
  return std::ssize(positions_of_rank(token_split(config), cp_rank));
}

/// Bytes of rows that are padding, at the end of the forward pass of a microbatch: all blocks have saved theirs, and
/// both buffers of gradients between units live from the start of the backward pass.
std::int64_t expected_bytes(const Case& of, const RunConfig& config, int cp_rank, int tp_rank) {
  const ModelSpec& model = config.model;
  const std::int64_t B = of.B, rows = rows_of(of), N = B * rows, n = of.tp > 1 ? N / of.tp : N,
                     tokens = tokens_of(config, cp_rank), first = n < N ? tp_rank * n : 0;
  std::int64_t local = 0;
  for (std::int64_t row = first; row < first + n; ++row) local += row % rows >= tokens ? 1 : 0;
  const std::int64_t own = B * (rows - tokens);
  const std::int64_t u = of.method == ContextMethod::ulysses_ring ? 2 : 1;  // ranks that exchange heads
  std::int64_t queries = own;
  if (u > 1) queries = B * (2 * rows - tokens - tokens_of(config, cp_rank ^ 1));
  const std::int64_t D = model.hidden_size, H = model.num_attention_heads / of.tp, C = model.head_dim,
                     F = model.intermediate_size / of.tp, e = 2, a = 4, L = model.num_hidden_layers;
  const std::int64_t of_block = own * e * (4 * H * C + 2 * F)  // q, k, v, the result; gate and up
                                + local * (e * D + 2 * a)      // h; 1/rms of both norms
                                + queries * a * (H / u);       // log-sum-exps
  const std::int64_t of_head = local * a;                      // 1/rms
  const std::int64_t between = local * e * D;                  // embedding, blocks and head, and two gradients
  const std::int64_t blocks = of.method == ContextMethod::ring ? 4 : of.method == ContextMethod::ulysses_ring ? 2 : 1;
  const std::int64_t of_batch = 4 * config.num_microbatches() * (2 * own + 2 * blocks * queries),
                     of_rope = own / B * C * a;
  return L * of_block + of_head + (L + 1 + 2) * between + of_batch + of_rope;
}

std::vector<Case> cases() {
  std::vector<Case> cases;
  for (const ContextMethod method : {ContextMethod::ring, ContextMethod::all_gather, ContextMethod::ulysses_ring})
    for (const LoadBalancer balancer : {LoadBalancer::headtail, LoadBalancer::striped})
      for (const std::int64_t B : {1, 2})
        for (const int tp : {1, 2})
          for (const bool is_float8 : {false, true}) cases.push_back({131, method, balancer, tp, is_float8, B});
  return cases;
}

std::string text_of(const Case& of) {
  return fmt::format("T {} {} {} tp {} float8 {} B {}", of.T, name_of(of.method), name_of(of.balancer), of.tp,
                     of.is_float8, of.B);
}

std::int64_t sum_of(const std::map<MemoryCategory, std::int64_t>& categories) {
  std::int64_t sum = 0;
  for (const auto& [category, bytes] : categories) sum += bytes;
  return sum;
}

TEST(PaddingRows, AreRowsTimesWidthOfAllTensors) {
  for (const Case& of : cases()) {
    SCOPED_TRACE(text_of(of));
    const RunConfig config = config_of(of);
    const Blueprint blueprint(config);
    UnitTraces units(config);
    std::int64_t most = 0;
    for (int rank = 0; rank < blueprint.mesh().num_ranks(); ++rank) {
      const RankBlueprint plan = blueprint.rank(rank, units);
      const std::int64_t expected = expected_bytes(of, config, blueprint.mesh().coordinate(rank, Axis::cp),
                                                   blueprint.mesh().coordinate(rank, Axis::tp));
      EXPECT_EQ(plan.memory(ProgramKind::training).peak_bytes(padding_rows), expected) << "rank " << rank;
      most = std::max(most, expected);
    }
    EXPECT_GT(most, 0);
    EXPECT_EQ(summary_of(blueprint).ranks.front().category_bytes.at(padding_rows), most) << "of the most padded rank";
  }
}

// Of the same buffers: with padding they hold as many bytes, in other categories.
TEST(PaddingRows, AreTakenFromWhatTheyPad) {
  for (const Case& of : cases()) {
    SCOPED_TRACE(text_of(of));
    const Blueprint blueprint(config_of(of));
    const RankBlueprint rank = blueprint.rank(0);
    for (const ProgramKind kind : {ProgramKind::training, ProgramKind::evaluation}) {
      const MemoryPlan padded = most_padded_memory(rank, kind), whole = rank.memory(kind).with_padding({});
      std::int64_t most_live = 0;
      for (const PlannedBuffer& at : whole.buffers()) {
        std::int64_t live = 0;
        for (const PlannedBuffer& buffer : whole.buffers())
          if (buffer.first_action == always ||
              (buffer.first_action <= at.first_action && at.first_action <= buffer.last_action))
            live += buffer.num_bytes;
        most_live = std::max(most_live, live);
      }
      EXPECT_EQ(sum_of(padded.bytes_at_peak()), most_live);
      EXPECT_EQ(sum_of(whole.bytes_at_peak()), most_live);
      EXPECT_LE(most_live, padded.num_bytes());
      EXPECT_EQ(padded.num_bytes(), whole.num_bytes());
      for (const MemoryCategory category : memory_categories()) {
        if (category == padding_rows) continue;
        EXPECT_EQ(padded.peak_bytes(category) + padded.peak_padding_bytes(category), whole.peak_bytes(category))
            << name_of(category);
      }
      EXPECT_EQ(padded.peak_padding_bytes(workspace), 0);
      EXPECT_GT(padded.bytes_at_peak().at(padding_rows), 0);
      EXPECT_EQ(whole.peak_bytes(padding_rows), 0);
    }
  }
}

TEST(PaddingRows, AreNoneWhereRanksDivideTokens) {
  for (const std::int64_t B : {1, 2}) {
    for (const Case& of :
         {Case{.T = 132, .B = B}, {.T = 136, .tp = 2, .B = B}, {.T = 192, .is_float8 = true, .B = B}}) {
      SCOPED_TRACE(text_of(of));
      const Blueprint blueprint(config_of(of));
      const MemoryPlan plan = most_padded_memory(blueprint.rank(0), ProgramKind::training);
      EXPECT_EQ(plan.peak_bytes(padding_rows), 0);
      EXPECT_FALSE(plan.bytes_at_peak().contains(padding_rows));
    }
  }
  const Blueprint whole(small_config());
  EXPECT_EQ(whole.rank(0).memory(ProgramKind::training).peak_bytes(padding_rows), 0);
}

ModelSpec model_of(Family family) {
  ModelSpec model = family_defaults(family);
  model.num_hidden_layers = 2;
  model.num_attention_heads = model.num_key_value_heads = 4;
  model.hidden_size = 512;  // so that rows are large, and what buffers are rounded up by is not
  model.head_dim = 128;
  model.intermediate_size = 256;
  model.vocab_size = 128;
  if (family == Family::mixtral || family == Family::qwen2_moe || family == Family::deepseek_v3) {
    model.mixture.num_experts = 8;
    model.mixture.num_experts_per_tok = 2;
    model.mixture.n_group = model.mixture.topk_group = 1;
    model.mixture.moe_intermediate_size = 256;
    model.mixture.first_k_dense_replace = 0;
    model.mixture.shared_expert_intermediate_size = family == Family::mixtral ? 0 : 256;
  }
  if (family != Family::deepseek_v3) return model;
  model.kv_lora_rank = 192;
  model.q_lora_rank = 320;
  model.qk_rope_head_dim = 64;
  model.v_head_dim = 96;
  return model;
}

// 4 k + 1 tokens on four ranks are k + 1 rows each, of which a rank that has k tokens needs k. Buffers are rounded up.
TEST(PaddingRows, AreWhatAPlanOfFewerTokensHasLess) {
  for (const Family family : {Family::llama, Family::gpt2, Family::qwen3, Family::olmo2, Family::gemma3_text,
                              Family::mixtral, Family::qwen2_moe, Family::deepseek_v3})
    for (const PipelineSchedule schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::zb_h1})
      for (const bool recomputes : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", name_of(family), name_of(schedule), recomputes));
        const auto plan_of = [&](std::int64_t T) {
          RunConfig config = small_config();
          config.model = model_of(family);
          config.model.max_position_embeddings = config.training.seq_len = T;
          config.training.micro_batch_size = 1;
          if (recomputes) config.training.recompute = {BlockOperation::mlp};
          config.parallelism.context_parallel_degree = 4;
          config.parallelism.pipeline_parallel_degree = 2;
          config.parallelism.pipeline_parallel_schedule = schedule;
          const Blueprint blueprint(config);
          return most_padded_memory(blueprint.rank(0), ProgramKind::training);
        };
        constexpr std::int64_t k = 100;
        const MemoryPlan more = plan_of(4 * k + 1), fewer = plan_of(4 * k);
        for (const MemoryCategory category : {activations, boundaries}) {
          const std::int64_t padding = more.peak_padding_bytes(category),
                             less = more.peak_bytes(category) + padding - fewer.peak_bytes(category);
          EXPECT_NEAR(static_cast<double>(padding) / static_cast<double>(less), 1, 0.02) << name_of(category);
        }
      }
}

}  // namespace
}  // namespace echelon::testing
