// Which heads are on which rank.
#include "nn/head_split.h"

#include "base/error.h"
#include "nn/context_parallel/head_exchange.h"
#include "nn/models.h"
#include "spec/groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace echelon::test {
namespace {

ModelSpec with_heads(std::int64_t num_heads, std::int64_t num_kv_heads) {
  ModelSpec model = small_llama();
  model.num_attention_heads = num_heads;
  model.num_key_value_heads = num_kv_heads;
  model.intermediate_size = 1000;
  return model;
}

bool is_valid(const ModelSpec& model, int tp) {
  try {
    validate_tensor_parallel(model, tp);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Every query head is on one rank, together with the kv head that it reads; kv heads are on as many ranks as
// head_split says.
TEST(HeadSplit, EveryHeadHasItsPlace) {
  for (const auto& [num_heads, num_kv_heads] :
       {std::pair{12, 12}, {12, 4}, {12, 3}, {10, 5}, {12, 1}, {7, 7}, {6, 2}, {32, 8}}) {
    const ModelSpec model = with_heads(num_heads, num_kv_heads);
    for (int tp = 1; tp <= num_heads; ++tp) {
      if (!is_valid(model, tp)) continue;
      std::vector<int> holders(static_cast<std::size_t>(num_heads)), kv_holders(static_cast<std::size_t>(num_kv_heads));
      std::int64_t most = 0, fewest = num_heads;
      for (int rank = 0; rank < tp; ++rank) {
        const HeadSplit split = head_split(model, tp, rank);
        EXPECT_EQ(split.head_in_group, split.first_head % (num_heads / num_kv_heads));
        for (std::int64_t h = 0; h < split.num_heads; ++h) {
          ++holders[split.first_head + h];
          const std::int64_t group = num_heads / num_kv_heads;
          EXPECT_EQ(split.first_kv_head + (h + split.head_in_group) / group, (split.first_head + h) / group);
          EXPECT_LT((h + split.head_in_group) / group, split.num_kv_heads);
        }
        for (std::int64_t k = 0; k < split.num_kv_heads; ++k) ++kv_holders[split.first_kv_head + k];
        most = std::max(most, split.num_heads);
        fewest = std::min(fewest, split.num_heads);
      }
      EXPECT_GE(fewest, 1) << "a rank has nothing to do";
      EXPECT_LE(most - fewest, num_heads / num_kv_heads);
      EXPECT_THAT(holders, testing::Each(1));
      EXPECT_THAT(kv_holders, testing::Each(kv_replicas(model, tp)));
    }
  }
}

TEST(HeadSplit, RanksOfOneKvHeadAreOneGroup) {
  const ModelSpec model = with_heads(12, 2);
  const Group group = kv_replica_group(kv_replicas(model, 6));
  EXPECT_EQ(group.block, 3);
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(head_split(model, 6, rank).first_kv_head, rank / group.block);
    EXPECT_EQ(head_split(model, 6, rank).kv_replica, rank % group.block);
  }
}

// With tensor parallelism, and with kv heads on several of its ranks.
TEST(HeadSplit, ExchangedHeadsReadTheirKvHeads) {
  for (const auto& [num_heads, num_kv_heads] : {std::pair{16, 16}, {16, 4}, {16, 2}, {16, 1}, {24, 8}})
    for (const int tp : {1, 2, 4})
      for (const int u : {1, 2, 4, 8}) {
        const ModelSpec model = with_heads(num_heads, num_kv_heads);
        const std::int64_t group = num_heads / num_kv_heads;
        for (int rank = 0; rank < tp; ++rank) {
          const HeadSplit split = head_split(model, tp, rank);
          const std::int64_t K = split.num_kv_heads;
          if (split.num_heads % u != 0 || (u % K != 0 && K % u != 0)) continue;
          for (int place = 0; place < u; ++place) {
            const HeadSplit part = exchanged_heads(split, u, place);
            EXPECT_EQ(part.num_heads, split.num_heads / u);
            EXPECT_EQ(part.first_head, split.first_head + place * part.num_heads);
            for (std::int64_t h = 0; h < part.num_heads; ++h)
              EXPECT_EQ(part.first_kv_head + (h + part.head_in_group) / group, (part.first_head + h) / group);
          }
        }
      }
}

TEST(HeadSplit, RefusesRanksThatCannotExchangeHeads) {
  const auto sentence_of = [](const ModelSpec& model, int tp, int u, int divides) -> std::string {
    try {
      validate_head_exchange(model, tp, {.key = "u", .num_ranks = u, .divides = divides});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const ModelSpec model = with_heads(12, 4);
  for (const int u : {1, 2, 4, 12}) EXPECT_EQ(sentence_of(model, 1, u, 0), "");
  EXPECT_THAT(sentence_of(model, 1, 3, 0),
              testing::AllOf(testing::StartsWith("u = 3 ranks"), testing::HasSubstr("(use 2)")));
  EXPECT_THAT(sentence_of(model, 1, 6, 12), testing::HasSubstr("(use 4)"));
  EXPECT_THAT(sentence_of(model, 1, 64, 0), testing::HasSubstr("(use 12)"));
  EXPECT_EQ(sentence_of(model, 4, 3, 0), "");  // of one kv head each
  EXPECT_THAT(sentence_of(model, 3, 2, 0), testing::HasSubstr("(use 1)"))
      << "6, 3 and 3 query heads, 2, 1 and 1 kv heads";
}

TEST(HeadSplit, RefusesWhatLeavesARankWithoutHeads) {
  const auto sentence_of = [](const ModelSpec& model, int tp) -> std::string {
    try {
      validate_tensor_parallel(model, tp);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const ModelSpec model = with_heads(12, 4);
  for (const int tp : {1, 2, 3, 4, 8, 12}) EXPECT_EQ(sentence_of(model, tp), "");
  EXPECT_THAT(sentence_of(model, 5), testing::AllOf(testing::HasSubstr("parallelism.tensor_parallel_degree = 5"),
                                                    testing::HasSubstr("(use 4)")));
  EXPECT_THAT(sentence_of(model, 7), testing::HasSubstr("(use 8)"));
  EXPECT_THAT(sentence_of(model, 100), testing::HasSubstr("(use 12)"));
  EXPECT_THAT(sentence_of(model, 0), testing::HasSubstr("(use 1)"));
  ModelSpec narrow = with_heads(12, 12);
  narrow.intermediate_size = 8;
  EXPECT_THAT(sentence_of(narrow, 12), testing::HasSubstr("(use 8)"));
}

}  // namespace
}  // namespace echelon::test
