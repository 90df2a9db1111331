// Text of files, and text for a terminal.
#include "base/text/printable.h"
#include "base/text_file.h"
#include "scratch_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace echelon {
namespace {

using testing::EndsWith;
using testing::StartsWith;

TEST(Printable, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(printable("red \x1b[31m bell \a"), "red \\x1b[31m bell \\x07");
  EXPECT_EQ(printable(std::string_view("a\0b\x7f", 4)), "a\\x00b\\x7f");
  EXPECT_EQ(printable("\xc3\xa4 \xff \xc2\x9b"), "\xc3\xa4 \\xff \\xc2\\x9b");
}

TEST(Printable, ShortensTheMiddle) {
  const std::string text = printable("begin" + std::string(1'000'000, 'x') + "end");
  EXPECT_LT(text.size(), 1100U);
  EXPECT_THAT(text, testing::AllOf(StartsWith("begin"), EndsWith("end"), testing::HasSubstr("x ... x")));
}

TEST(TextFile, IsReadWholeOrNotAtAll) {
  const std::string path = scratch_folder() + "/echelon-text-file";
  const std::string text(300'000, 'x');
  std::ofstream(path) << text;
  EXPECT_EQ(read_text_file(path), text);
  EXPECT_EQ(read_text_file(path, 299'999), std::nullopt);
  std::ofstream(path).close();
  EXPECT_EQ(read_text_file(path), "");
  for (const char* const other : {"/dev/zero", "/proc/self/mem", "/tmp", "/nonexistent"})
    EXPECT_EQ(read_text_file(other, 1U << 20U), std::nullopt) << other;
}

}  // namespace
}  // namespace echelon
