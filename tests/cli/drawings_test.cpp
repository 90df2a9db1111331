// The drawings in the documents are the program's: ```text echelon draw FLAGS contains the output for these flags.
#include "base/error.h"
#include "cli/program.h"
#include "schedule/generators/catalog.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>

namespace echelon {
namespace {

TEST(Drawings, AreWhatTheProgramPrints) {
  std::ifstream file(ECHELON_SOURCE_DIR "/docs/internals/schedules.md");
  int num_drawings = 0;
  const std::string fence = "```", command = fence + "text echelon ";
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(command)) continue;
    std::istringstream words(line.substr(command.size()));
    const std::vector<std::string> arguments{std::istream_iterator<std::string>(words), {}};
    std::string drawing;
    while (std::getline(file, line) && line != fence) drawing += line + "\n";
    EXPECT_EQ(run_echelon(arguments).out, drawing);
    ++num_drawings;
  }
  EXPECT_GE(num_drawings, 10);
}

// | `name` | `also` | placement | ... of the table of names.
TEST(Drawings, TheTableOfNamesIsTheProgramsTable) {
  std::ifstream file(ECHELON_SOURCE_DIR "/docs/internals/schedules.md");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  for (const ScheduleEntry& entry : all_schedules()) {
    const std::string also = entry.also_called.empty() ? "" : "`" + std::string(entry.also_called) + "` ";
    const std::string stages = entry.most_virtual == entry.least_virtual
                                   ? std::to_string(entry.least_virtual)
                                   : std::to_string(entry.least_virtual) + " and more";
    const std::string_view backward = entry.backward == BackwardKinds::fused   ? "one"
                                      : entry.backward == BackwardKinds::split ? "apart"
                                                                               : "both";
    const std::string row =
        fmt::format("| `{}` | {}| {} | {} | {} |", entry.name, also, name_of(entry.placement), stages, backward);
    EXPECT_NE(text.find(row), std::string::npos) << row;
  }
}

}  // namespace
}  // namespace echelon
