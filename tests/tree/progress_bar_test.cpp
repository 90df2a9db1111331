// scripts/progress_bar draws ninja's status on a terminal, prints it sometimes elsewhere, and lets errors pass.
#include "tree/tree.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>

namespace echelon {
namespace {

std::string output_of(const std::string& command) {
  std::string output;
  FILE* const pipe = popen(command.c_str(), "r");
  std::array<char, 256> chunk{};
  while (std::fgets(chunk.data(), static_cast<int>(chunk.size()), pipe) != nullptr) output += chunk.data();
  EXPECT_EQ(pclose(pipe), 0) << command;
  return output;
}

std::string build_through_bar() {
  return R"(printf '[1/4] Building a\n[2/4] Building b\nb.cpp:1: error: x\n[4/4] Linking c' | ')" +
         (tree::root() / "scripts/progress_bar").string() + "' building";
}

TEST(ProgressBar, IsALineForEachTenthWithoutATerminal) {
  EXPECT_EQ(output_of(build_through_bar()),
            "building: 1 of 4\nbuilding: 2 of 4\nb.cpp:1: error: x\nbuilding: 4 of 4\n");
  EXPECT_EQ(output_of("for i in $(seq 1 100); do echo \"[$i/100] x\"; done | " +
                      (tree::root() / "scripts/progress_bar").string() + " building | wc -l"),
            "10\n");
}

TEST(ProgressBar, IsDrawnInOneLineOfATerminal) {
  // script gives its command a terminal, which ends lines with \r\n.
  std::string quoted;
  for (const char c : build_through_bar()) quoted += c == '\'' ? std::string(R"('\'')") : std::string(1, c);
  const std::string start = "\r\x1b[K";
  EXPECT_EQ(output_of("script -qec '" + quoted + "' /dev/null </dev/null"),
            start + "[#####...............] building 1/4" + start + "[##########..........] building 2/4" + start +
                "b.cpp:1: error: x\r\n" + start + "[####################] building 4/4\r\n");
}

}  // namespace
}  // namespace echelon
