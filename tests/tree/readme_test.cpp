// README is short, shows a schedule as the program draws it, and names existing tests. Examples are configs that the
// reader accepts. What its commands print is checked in tests/cli/readme_test.cpp.
#include "schedule/draw/draw.h"
#include "schedule/lowering/lower.h"
#include "spec/config/config_reader.h"
#include "tree/tree.h"

#include <regex>

namespace echelon {
namespace {

std::vector<std::string> readme() { return tree::lines_of(tree::read_text(tree::root() / "README.md")); }

std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells;
  std::istringstream stream(row.substr(1));
  for (std::string cell; std::getline(stream, cell, '|');) cells.push_back(cell);
  return cells;
}

TEST(Readme, IsShort) {
  EXPECT_LE(readme().size(), 120U);
  for (const std::string& line : readme()) {
    EXPECT_LE(line.size(), 100U) << line;
    if (!line.starts_with('|')) continue;
    for (const std::string& cell : cells_of(line)) {
      std::istringstream words(cell);
      EXPECT_LE(std::distance(std::istream_iterator<std::string>(words), {}), 15) << cell;
    }
  }
}

// The last column of the table of features: `Name`, which ctest -R takes.
TEST(Readme, NamesTestsThatExist) {
  static const std::regex quoted("`(\\w+)`"), declared(R"(\n(?:TYPED_)?TEST(?:_[FP])?\((\w+), (\w+)\))");
  std::string tests;
  for (const auto& file : tree::files_below("tests", {".cpp"})) {
    const std::string text = tree::read_text(tree::root() / file);
    for (std::sregex_iterator match(text.begin(), text.end(), declared), end; match != end; ++match)
      tests += (*match)[1].str() + "." + (*match)[2].str() + "\n";
  }
  int num_named = 0;
  for (const std::string& line : readme()) {
    if (!line.starts_with('|')) continue;
    const std::string cell = cells_of(line).back();
    for (std::sregex_iterator match(cell.begin(), cell.end(), quoted), end; match != end; ++match, ++num_named)
      EXPECT_NE(tests.find((*match)[1]), std::string::npos) << "no test has the name " << (*match)[1];
  }
  EXPECT_GE(num_named, 10);
}

TEST(Readme, ShowsOneFOneBAsDrawn) {
  const Schedule schedule = one_f_one_b_schedule(4, 8);
  const LoweringOptions options = {.stages = {4, StageShape{.num_units = 1, .unit_sums_replicas = {false, false}}}};
  const auto programs = lower(schedule, options);
  std::string indented;
  for (const auto& line : tree::lines_of(draw(simulate_programs(programs, cost_of({})), programs)))
    indented += "    " + line + "\n";
  EXPECT_NE(tree::read_text(tree::root() / "README.md").find(indented), std::string::npos) << "README does not show\n"
                                                                                           << indented;
}

TEST(Examples, AreConfigsThatTheReaderTakes) {
  const auto examples = tree::files_below("examples", {".toml"});
  EXPECT_FALSE(examples.empty());
  for (const auto& example : examples)
    EXPECT_NO_THROW((void)read_run_config({tree::root() / example, {}, {}})) << example;
}

TEST(Examples, HaveEightRanksWhereTheySaySo) {
  for (const char* const name : {"examples/quickstart.toml", "examples/eight_ranks.toml"}) {
    const RunConfig config = read_run_config({tree::root() / name, {}, {}});
    EXPECT_EQ(config.data_parallel_degree(), 2) << name;
    EXPECT_EQ(config.parallelism.tensor_parallel_degree, 2) << name;
    EXPECT_EQ(config.parallelism.pipeline_parallel_degree, 2) << name;
  }
}

}  // namespace
}  // namespace echelon
