#include "base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace echelon {
namespace {

TEST(Nearest, PrefersTheFewestEdits) {
  constexpr std::string_view names[] = {"steps", "seq_len", "seed"};
  EXPECT_EQ(closest_name("stpes", names), "steps");
  EXPECT_EQ(closest_name("seqlen", names), "seq_len");
  EXPECT_EQ(closest_name("seeds", names), "seed");
  EXPECT_EQ(closest_name("x", {}), "");
  EXPECT_EQ(closest_name("", names), names[0]);
}

TEST(Nearest, KnowsOtherNamesAndPrefersCommonStarts) {
  constexpr std::string_view dtypes[] = {"float32", "bfloat16", "float16", "float64"},
                             decays[] = {"none", "cosine", "linear", "wsd"},
                             balancers[] = {"headtail", "none", "striped"},
                             sends[] = {"auto", "direct", "hierarchical", "all_gather"},
                             profiles[] = {"echelon", "bloom", "megatron-2021", "megatron-core"};
  for (const std::string_view name : {"BF16", "bf16", "Bfloat"}) EXPECT_EQ(closest_name(name, dtypes), "bfloat16");
  EXPECT_EQ(closest_name("FP16", dtypes), "float16");
  EXPECT_EQ(closest_name("fp32", dtypes), "float32");
  EXPECT_EQ(closest_name("cos", decays), "cosine");
  EXPECT_EQ(closest_name("Linaer", decays), "linear");
  EXPECT_EQ(closest_name("zigzag", balancers), "headtail");
  EXPECT_EQ(closest_name("tail", balancers), "headtail");
  EXPECT_EQ(closest_name("all-to-all", sends), "direct");
  EXPECT_EQ(closest_name("Megatron-LM", profiles), "megatron-core");
  EXPECT_THAT(closest_name("megtron", profiles), testing::StartsWith("megatron-"));
}

TEST(Require, ThrowsTheFormattedSentenceWithStatusTwo) {
  EXPECT_NO_THROW(require(true, "never"));
  try {
    require(false, "training.steps = {} is below 1", 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "training.steps = 0 is below 1");
    EXPECT_EQ(error.status(), ExitStatus::bad_input);
  }
}

TEST(Error, KeepsWhatFollowsAZeroByte) {
  EXPECT_STREQ(Error(std::string("'a\0b' is no name", 16)).what(), "'a\\x00b' is no name");
}

}  // namespace
}  // namespace echelon
