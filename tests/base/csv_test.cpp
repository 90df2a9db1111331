// Tables as spreadsheets write them.
#include "base/csv.h"

#include "base/error.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

TEST(Csv, QuotesHoldCommasQuotesAndLines) {
  const auto rows = parse_csv("id,notes,seq\r\na,\"x, \"\"y\"\"\nz\",2048\r\n\r\nb, plain ,\n", "table");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].at("notes"), "x, \"y\"\nz");
  EXPECT_EQ(rows[0].at("seq"), "2048");
  EXPECT_EQ(rows[1].line, 5U);
  EXPECT_EQ(rows[1].at("notes"), "plain");
  EXPECT_EQ(rows[1].at("seq"), "");
  EXPECT_EQ(rows[1].at("no such column"), "");
}

TEST(Csv, TheLastLineMayEndTheFile) {
  const auto rows = parse_csv("\xEF\xBB\xBFid,b\nx,1", "table");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].at("id"), "x");
  EXPECT_EQ(rows[0].at("b"), "1");
}

TEST(Csv, TooManyFieldsAreCountedAndAnOpenQuoteIsRefused) {
  EXPECT_EQ(parse_csv("a\n1,2,3\n", "table").at(0).surplus_fields, 2U);
  EXPECT_THROW((void)parse_csv("a\n\"1\n", "table"), Error);
  EXPECT_THROW((void)parse_csv("", "table"), Error);
  EXPECT_THROW((void)parse_csv(std::string_view("a\n\0", 3), "table"), Error);
  EXPECT_THROW((void)parse_csv("a\4\n", "table"), Error);
}

TEST(Csv, AColumnThatStandsTwiceOrIsMissingIsNamed) {
  constexpr std::string_view needed[] = {"gpus", "seq"};
  const auto refused = [&](std::string_view text) {
    try {
      (void)parse_csv(text, "table", needed);
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(refused("seq, gpus ,,\n"), "");
  EXPECT_EQ(refused("gpus,seq,gpus\n"), "table has two columns 'gpus'; omit one of them");
  EXPECT_EQ(refused("gpu,seq\n"), "the first line of table has no column 'gpus'; did you mean 'gpu'?");
}

}  // namespace
}  // namespace echelon
