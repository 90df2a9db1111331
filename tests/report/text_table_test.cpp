#include "report/text_table.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

TEST(TextTable, AlignsColumns) {
  EXPECT_EQ(text_table({{"of", "a", "bcd"}, {"row", "12.5", "1"}, {"last"}}),
            "of       a  bcd\n"
            "row   12.5    1\n"
            "last\n");
}

}  // namespace
}  // namespace echelon
