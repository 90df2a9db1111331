#include "base/text/written_number.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

TEST(WrittenNumber, HasFourDigitsAndNoExponent) {
  EXPECT_EQ(written(0), "0");
  EXPECT_EQ(written(0.04351), "0.04351");
  EXPECT_EQ(written(43.506), "43.51");
  EXPECT_EQ(written(4350), "4350");
  EXPECT_EQ(written(9999.7), "10,000");
  EXPECT_EQ(written(69'592), "69,590");
  EXPECT_EQ(written(-69'592), "-69,590");
  EXPECT_EQ(written(999'940), "999,900");
  EXPECT_EQ(written(999'960), "1 million");
  EXPECT_EQ(written(218.72e9), "218.7 billion");
  EXPECT_EQ(written(15e12), "15 trillion");
  EXPECT_EQ(written(1e17), "1e+17");
}

TEST(WrittenNumber, OfBytesHasAUnit) {
  EXPECT_EQ(written_bytes(0), "0 kB");
  EXPECT_EQ(written_bytes(32'768), "32.77 kB");
  EXPECT_EQ(written_bytes(847'800'000), "847.8 MB");
  EXPECT_EQ(written_bytes(12'345'678'901'234), "12,350 GB");
}

TEST(WrittenNumber, GroupsDigits) {
  EXPECT_EQ(grouped(7), "7");
  EXPECT_EQ(grouped(-123), "-123");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
}

}  // namespace
}  // namespace echelon
