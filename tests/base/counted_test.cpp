#include "base/text/counted.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

TEST(Counted, HasTheNounInItsNumber) {
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(2, "microbatch"), "2 microbatches");
  EXPECT_EQ(counted(3, "process"), "3 processes");
  EXPECT_EQ(counted(2, "entry"), "2 entries");
  EXPECT_EQ(counted(2, "key"), "2 keys");
  EXPECT_EQ(counted(1.5, "round"), "1.5 rounds");
  EXPECT_EQ(plural(1, "microbatch"), "microbatch");
}

}  // namespace
}  // namespace echelon
