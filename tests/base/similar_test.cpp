#include "base/text/similar.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

TEST(Similar, KeepsHalfOfTheLettersAtLeast) {
  constexpr std::string_view names[] = {"steps", "seq_len", "seed"};
  EXPECT_EQ(similar("stpes", names), "steps");
  EXPECT_EQ(similar("step_size", names), "steps");
  EXPECT_EQ(similar("frobnicate", names), "");
  EXPECT_EQ(similar("x", {}), "");
}

TEST(EditDistance, SwapsNeighboursInOneStep) {
  EXPECT_EQ(edit_distance("stpes", "steps"), 1U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

}  // namespace
}  // namespace echelon
