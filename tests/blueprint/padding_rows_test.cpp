// Rows beyond the tokens of a rank, against plans that have one row less.
#include "blueprint/padding_rows.h"

#include "blueprint/small_config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

RunConfig config_of(std::int64_t T, ContextMethod method) {
  RunConfig config = small_config();
  config.model.max_position_embeddings = config.training.seq_len = T;
  config.model.hidden_size = 512;  // so that rows are large, and what buffers are rounded up by is not
  config.model.head_dim = 128;
  config.training.micro_batch_size = 1;
  config.parallelism.context_parallel_degree = 4;
  config.parallelism.context_parallel_method = method;
  return config;
}

std::int64_t bytes_by_token(const RankBlueprint& rank) {
  std::int64_t bytes = 0;
  for (const auto& [category, of_category] : rank.memory(ProgramKind::training).bytes_at_peak())
    if (category == MemoryCategory::activations || category == MemoryCategory::boundaries) bytes += of_category;
  return bytes;
}

// 4 k + 1 tokens on four ranks are k + 1 rows each, of which a rank that has k tokens needs k. Buffers are rounded up.
TEST(PaddingRows, AreWhatAPlanOfFewerTokensHasLess) {
  for (const ContextMethod method : {ContextMethod::ring, ContextMethod::all_gather})
    for (const std::int64_t k : {32, 100}) {
      const Blueprint more(config_of(4 * k + 1, method)), fewer(config_of(4 * k, method));
      const PaddingRows padding = padding_rows(more.rank(0), ProgramKind::training);
      EXPECT_EQ(padding.num_rows, 1);
      EXPECT_EQ(padding.of_rows, k + 1);
      const std::int64_t less = bytes_by_token(more.rank(0)) - bytes_by_token(fewer.rank(0));
      EXPECT_NEAR(static_cast<double>(padding.num_bytes) / static_cast<double>(less), 1, 0.02);
      EXPECT_EQ(to_text(padding).find(fmt::format("1 of {} rows of activations and boundaries is padding: ", k + 1)),
                0U);
      EXPECT_EQ(padding_rows(fewer.rank(0), ProgramKind::training).num_bytes, 0);
    }
}

// Sequence parallelism divides rows again: of 13 tokens on two ranks the second has 6, and 8 rows on tp 4.
TEST(PaddingRows, OfSequenceParallelismAreMore) {
  RunConfig config = config_of(13, ContextMethod::ring);
  config.parallelism.context_parallel_degree = 2;
  config.parallelism.tensor_parallel_degree = 4;
  config.parallelism.sequence_parallel = true;
  const Blueprint blueprint(config);
  EXPECT_EQ(padding_rows(blueprint.rank(0), ProgramKind::training).num_rows, 2);
}

TEST(PaddingRows, AreNoneOfWholeSequences) {
  const Blueprint blueprint(small_config());
  EXPECT_EQ(padding_rows(blueprint.rank(0), ProgramKind::training).num_bytes, 0);
  EXPECT_EQ(to_text(PaddingRows()), "");
}

}  // namespace
}  // namespace echelon::testing
