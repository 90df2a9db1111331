#include "base/error.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

TEST(Nearest, PrefersTheFewestEdits) {
  constexpr std::string_view names[] = {"steps", "seq_len", "seed"};
  EXPECT_EQ(closest_name("stpes", names), "steps");
  EXPECT_EQ(closest_name("seqlen", names), "seq_len");
  EXPECT_EQ(closest_name("seeds", names), "seed");
  EXPECT_EQ(closest_name("x", {}), "");
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
