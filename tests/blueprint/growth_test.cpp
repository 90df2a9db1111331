// What a rank holds of long sequences: at T / cp fixed nothing but int32 arrays grows with T, and sizes beyond 2^31
// elements and positions up to 2^24 do not overflow.
#include "blueprint/activation_formulas.h"
#include "blueprint/blueprint.h"
#include "blueprint/small_config.h"
#include "context/key_ranges.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

namespace echelon::testing {
namespace {

constexpr std::int64_t rows = 1 << 13;  // of a rank

/// u: neighbours that exchange heads, 1: a ring of ranks.
struct Growing {
  BlockOperations recompute;
  std::int64_t window, u;
};

RunConfig config_of(std::int64_t T, const BlockOperations& recompute) {
  RunConfig config = small_config();
  config.model.max_position_embeddings = config.training.seq_len = T;
  config.training.micro_batch_size = config.training.global_batch_size = 1;
  config.training.recompute = recompute;
  if (!recompute.empty()) config.training.mlp_chunk_tokens = 512;
  config.parallelism.context_parallel_degree = T / rows;
  return config;
}

/// Of the first rank, in each category.
std::map<MemoryCategory, std::int64_t> planned(const RunConfig& config) {
  const Blueprint blueprint(config);
  const RankBlueprint rank = blueprint.rank(0);
  std::map<MemoryCategory, std::int64_t> bytes;
  for (const MemoryCategory category : memory_categories())
    bytes[category] = rank.memory(ProgramKind::training).peak_bytes(category);
  return bytes;
}

RunConfig config_of(std::int64_t T, const Growing& growing) {
  RunConfig config = config_of(T, growing.recompute);
  config.model.family = Family::mistral;
  config.model.sliding_window = growing.window;
  if (growing.u == 1) return config;
  config.parallelism.context_parallel_method = ContextMethod::ulysses_ring;
  config.parallelism.context_parallel_ulysses_degree = growing.u;
  return config;
}

void expect_growth_in_integers_alone(const Growing& growing) {
  using enum MemoryCategory;
  std::map<MemoryCategory, std::int64_t> shortest;
  for (std::int64_t T = 1 << 16; T <= 1 << 22; T *= 8) {
    const auto bytes = planned(config_of(T, growing));
    if (shortest.empty()) shortest = bytes;
    for (const MemoryCategory category : {constants, activations, boundaries, workspace})
      EXPECT_EQ(bytes.at(category), shortest.at(category)) << name_of(category) << " of " << T;
    // Tokens, targets, for each rank's keys where a query's range starts and ends, and the order of exchanged rows.
    const std::int64_t ordered = growing.u == 1 ? 0 : 2 * growing.u;
    EXPECT_EQ(bytes.at(batch), size_of(DType::int32) * rows * (2 + 2 * T / rows + ordered)) << T;
  }
}

// Claim (plans): In a ring, activations and workspace depend on T / cp alone.
// Bound: equal to the byte for T from 2^16 to 2^22.
// Tests: Growth
TEST(Growth, OfSequencesIsInIntegersAlone) {
  expect_growth_in_integers_alone({{}, 0, 1});
  expect_growth_in_integers_alone({whole_block, 100, 1});
}

TEST(Growth, OfSequencesInARingOfGroupsIsInIntegersAlone) { expect_growth_in_integers_alone({whole_block, 100, 4}); }

// A rank's x has 2^32 values, its activations 2^33.
TEST(Growth, OfTensorsBeyondInt32IsCounted) {
  RunConfig config = config_of(1 << 21, whole_block);
  config.parallelism.context_parallel_degree = 8;
  config.model.hidden_size = 16384;
  config.model.num_attention_heads = config.model.num_key_value_heads = 128;
  config.model.head_dim = 128;
  config.model.intermediate_size = 32768;
  config.training.dtype = DType::bfloat16;
  formulas::Block block = {.N = 1 << 18, .n = 1 << 18, .D = 16384, .H = 128, .K = 128, .C = 128, .F = 32768};
  block.e = size_of(DType::bfloat16);
  block.a = size_of(DType::float32);
  block.S = 1;
  block.G = 2;
  block.has_ring = true;
  block.M = 512;
  ASSERT_GT(block.N * block.D, std::int64_t{1} << 31);
  // The outputs of the embedding and of four blocks are kept, and the statistics of the head's norm.
  EXPECT_EQ(planned(config).at(MemoryCategory::activations),
            5 * block.x() + 4 * formulas::kept(block, whole_block) + block.statistics());
}

// 2^24 tokens: rank r of 64 has chunks r and 127 - r, and of the pairs of a causal mask those of its own positions.
TEST(Growth, OfPositionsTo16MillionIsExact) {
  constexpr std::int64_t T = 1 << 24, cp = 64, chunk = T / (2 * cp);
  constexpr int rank = 5;
  TokenLists lists;
  lists.assign({.seq_len = T, .cp = static_cast<int>(cp)});
  const DocumentOffsets whole = {0, T};
  std::vector<std::int32_t> begin(2 * chunk), end(2 * chunk);
  for (const std::int64_t window : {std::int64_t{0}, std::int64_t{1} << 20}) {
    std::int64_t pairs = 0, expected = 0;
    for (int source = 0; source < cp; ++source) {
      write_key_ranges({lists.positions(rank), lists.positions(source)}, {whole, window}, {begin, end});
      pairs += num_pairs(begin, end);
    }
    for (const std::int64_t first : {rank * chunk, T - (rank + 1) * chunk})
      expected += num_document_pairs(first + chunk, window) - num_document_pairs(first, window);
    EXPECT_EQ(pairs, expected) << window;
  }
}

}  // namespace
}  // namespace echelon::testing
