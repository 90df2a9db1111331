// The drawings in the documents are the program's: ```text echelon draw FLAGS holds what these flags print.
#include "cli/program.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>

namespace echelon {
namespace {

TEST(Drawings, AreWhatTheProgramPrints) {
  std::ifstream file(ECHELON_SOURCE_DIR "/docs/schedules.md");
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

}  // namespace
}  // namespace echelon
