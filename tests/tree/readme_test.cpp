// What README shows is what the program makes: the drawn schedule, and examples that the config reader takes.
#include "schedule/draw.h"
#include "schedule/lower.h"
#include "spec/config_reader.h"
#include "tree/tree.h"

namespace echelon {
namespace {

TEST(Readme, ShowsOneFOneBAsDrawn) {
  const Schedule schedule = one_f_one_b_schedule(4, 8);
  const LoweringOptions options = {.stages = {4, StageShape{.num_units = 1, .unit_sums_replicas = {false, false}}}};
  const auto programs = lower(schedule, options);
  std::string indented;
  for (const auto& line : tree::lines_of(draw(play(programs, cost_of({})), programs))) indented += "    " + line + "\n";
  EXPECT_NE(tree::read_text(tree::root() / "README.md").find(indented), std::string::npos) << "README does not show\n"
                                                                                           << indented;
}

TEST(Examples, AreConfigsThatTheReaderTakes) {
  const auto examples = tree::files_below("examples", {".toml"});
  EXPECT_FALSE(examples.empty());
  for (const auto& example : examples)
    EXPECT_NO_THROW((void)read_run_config({tree::root() / example, {}, {}})) << example;
}

TEST(Examples, QuickstartHasEightRanks) {
  const RunConfig config = read_run_config({tree::root() / "examples/quickstart.toml", {}, {}});
  EXPECT_EQ(config.data_parallel_degree(), 2);
  EXPECT_EQ(config.parallelism.tensor_parallel_degree, 2);
  EXPECT_EQ(config.parallelism.pipeline_parallel_degree, 2);
}

}  // namespace
}  // namespace echelon
