// Bad input ends the program with status 2 and one line that names what is wrong and what is meant; never with a crash.
#include "cli/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace echelon {
namespace {

using testing::HasSubstr;

struct BadInput {
  std::vector<std::string> arguments;
  std::vector<std::string> named;  // what the line must contain
};

class BadInputs : public testing::TestWithParam<BadInput> {};

TEST_P(BadInputs, EndInOneLineAndStatusTwo) {
  const Outcome outcome = run_echelon(GetParam().arguments);
  EXPECT_EQ(outcome.status, 2) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_THAT(outcome.err, testing::StartsWith("echelon: "));
  EXPECT_THAT(outcome.err, testing::EndsWith("\n"));
  for (const std::string& part : GetParam().named) EXPECT_THAT(outcome.err, HasSubstr(part));
}

const BadInput command_lines[] = {
    {{}, {"no verb", "draw"}},
    {{"drwa"}, {"'drwa'", "nearest: draw"}},
    {{""}, {"''"}},
    {{"--hlep"}, {"--hlep", "nearest: --help"}},
    {{"draw", "--stage=4"}, {"--stage=4", "nearest: --stages"}},
    {{"draw", "--stages=four"}, {"--stages", "four"}},
    {{"draw", "--stages=0"}, {"--stages", "0"}},
    {{"draw", "--stages=99999999999999999999"}, {"--stages", "99999999999999999999"}},
    {{"draw", "--stages"}, {"--stages"}},
    {{"draw", "--schedule=1f2b"}, {"--schedule", "'1f2b'", "nearest: 1F1B"}},
    {{"draw", "extra"}, {"'extra'"}},
    {{"draw", "--training.steps=5"}, {"--training.steps=5"}},
};
INSTANTIATE_TEST_SUITE_P(CommandLines, BadInputs, testing::ValuesIn(command_lines));

}  // namespace
}  // namespace echelon
