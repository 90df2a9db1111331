// No layout is faster or smaller than its bounds say, and its programs take what its blueprint takes: random layouts of
// several models and machines against their blueprints.
#include "plan/bounds/bounds.h"

#include "plan/bounds/layout_steps.h"
#include "plan/search/plan.h"
#include "plan/some_host.h"
#include "spec/config/config_reader.h"

#include <gtest/gtest.h>

#include <ostream>
#include <random>

namespace echelon {
namespace {

struct Case {
  const char* name;
  std::string model, machine;  // no machine: some host
  std::int64_t gpus, batch, seq_len;
  int draws;
  std::vector<std::string> settings = {};
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.model << " on " << c.gpus << " of " << c.machine;
}

PlanRequest request_of(const Case& c) {
  return read_plan_request(
      {.model = c.model,
       .machine = c.machine,
       .gpus = c.gpus,
       .global_batch_size = c.batch,
       .seq_len = c.seq_len,
       .settings = c.machine.empty() ? std::vector<std::string>{"--training.dtype=float32"} : c.settings,
       .this_machine = some_host});
}

template <class T>
const T& any_of(const std::vector<T>& all, std::mt19937& random) {
  return all[random() % all.size()];
}

PlanChoice any_choice(const PlanSpace& space, std::mt19937& random) {
  PlanChoice choice;
  choice.shape = any_of(space.shapes(), random);
  choice.pipeline = any_of(space.pipelines(choice.shape), random);
  choice.recompute = any_of(space.recomputes(choice.pipeline), random);
  choice.data = any_of(space.data_layouts(choice.shape), random);
  choice.order = any_of(space.orders(choice.shape, choice.data), random);
  return choice;
}

class Bounds : public ::testing::TestWithParam<Case> {};

TEST_P(Bounds, AreBelowTheBlueprintsNumbers) {
  const PlanRequest request = request_of(GetParam());
  const PlanSpace space(request);
  PlanBounds bounds(space, request);
  LayoutSteps steps(space, request, bounds.costs());
  std::mt19937 random(1);
  for (int i = 0; i < GetParam().draws; ++i) {
    const PlanChoice choice = any_choice(space, random);
    const PlanComputation computation = {choice.shape, choice.pipeline, choice.recompute};
    const Plan plan = evaluate(space, request, choice);
    SCOPED_TRACE(to_toml(plan.config).substr(to_toml(plan.config).find("[training]")));
    const double played = bounds.seconds(choice, true), unplayed = bounds.seconds(choice, false);
    EXPECT_LE(played, plan.outcome.step_seconds);
    EXPECT_LE(unplayed, played);
    const double of_any_order = bounds.seconds_of_any_order(choice);
    EXPECT_LE(of_any_order, unplayed);
    EXPECT_LE(bounds.pipeline_seconds(computation), of_any_order);
    EXPECT_LE(bounds.shape_seconds(choice.shape), bounds.pipeline_seconds(computation) * (1 + 1e-12));
    EXPECT_LE(bounds.bytes().of_layout(choice), plan.outcome.peak_memory_bytes());
    EXPECT_LE(bounds.bytes().of_pipeline(computation), bounds.bytes().of_layout(choice));
    const std::optional<LayoutStep> step = steps.play(choice);
    if (!step) continue;
    if (step->is_exact)
      EXPECT_NEAR(step->seconds, plan.outcome.step_seconds, 1e-10 * plan.outcome.step_seconds);
    else
      EXPECT_LE(step->seconds, plan.outcome.step_seconds * (1 + 1e-12));
    EXPECT_LE(played, step->seconds);
    PlanChoice alike = choice;
    alike.order = bounds.costs().orders().stand_in(choice.shape, choice.data, choice.order);
    EXPECT_EQ(steps.play(alike)->seconds, step->seconds) << name_of(choice.order) << " and " << name_of(alike.order);
    EXPECT_LE(step->live_bytes, plan.outcome.peak_memory_bytes());
    EXPECT_LE(bounds.bytes().of_layout(choice), step->live_bytes);
  }
}

const Case cases[] = {
    {"TiedOnSlowLinks", "gpt2-124m", "v100", 24, 48, 1024, 120},
    {"GroupedQueries", "llama3-8b", "h100", 16, 32, 4096, 120},
    {"QueryNorms", "qwen3-0.6b", "a100-40", 12, 24, 2048, 60},
    {"RanksThatShareCores", "llama-10m", "", 12, 24, 64, 60},
    {"WholeParametersForTheWayBack",
     "gpt2-124m",
     "v100",
     16,
     64,
     64,
     150,
     {"--parallelism.zero_level=3", "--parallelism.reshard_after_forward=never"}},
    {"GatheredForEachPass",
     "gpt2-124m",
     "v100",
     16,
     64,
     64,
     150,
     {"--parallelism.zero_level=3", "--parallelism.reshard_after_forward=microbatch"}},
    {"RanksWithCoresOfTheirOwn", "llama-10m", "", 2, 8, 128, 60},
    {"Large", "gpt3-175b", "a100-80", 128, 128, 2048, 8},
};

INSTANTIATE_TEST_SUITE_P(Plan, Bounds, ::testing::ValuesIn(cases),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace echelon
