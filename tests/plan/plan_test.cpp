// The search against timing everything, and against layouts drawn at random; and what it refuses.
#include "plan/search/search.h"

#include "plan/exhaustive.h"
#include "plan/search/config_plan.h"
#include "plan/search/cost.h"
#include "plan/search/draws.h"
#include "plan/search/long_run.h"
#include "plan/some_host.h"
#include "plan/text/text.h"
#include "scratch_folder.h"
#include "spec/config/config_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

namespace echelon {
namespace {

using ::testing::HasSubstr;

PlanQuestion question(const std::string& model, const std::string& machine, std::int64_t gpus, std::int64_t batch,
                      std::int64_t seq_len) {
  return {.model = model, .machine = machine, .gpus = gpus, .global_batch_size = batch, .seq_len = seq_len};
}

std::string sentence_of(const PlanQuestion& asked) {
  try {
    const PlanRequest request = read_plan_request(asked);
    (void)PlanSpace(request);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Requests whose spaces are small enough to be timed as a whole; where memory is short and where it is not, for time
/// and for memory.
std::vector<PlanRequest> small_requests() {
  std::vector<PlanRequest> requests;
  for (const char* objective : {"time", "memory"}) {
    PlanQuestion asked = question("llama-10m", "h100", 2, 4, 64);
    asked.objective = objective;
    asked.settings = {"--training.micro_batch_size=1", "--parallelism.virtual_stages=2"};
    requests.push_back(read_plan_request(asked));
    asked = question("gpt2-124m", "v100", 4, 4, 1024);
    asked.objective = objective;
    asked.settings = {"--parallelism.pipeline_parallel_schedule=1F1B", "--training.recompute_method=uniform"};
    requests.push_back(read_plan_request(asked));
    requests.push_back(requests.back());
    // 1.5 GiB: most layouts do not fit.
    requests.back().machine.nodes.front().device.memory_bytes = std::int64_t{3} << 29;
    asked = question("llama-1m", "", 4, 4, 64);
    asked.objective = objective;
    asked.this_machine = some_host;
    asked.settings = {"--training.micro_batch_size=1", "--parallelism.virtual_stages=1", "--training.recompute=none",
                      "--training.dtype=float32"};
    requests.push_back(read_plan_request(asked));
  }
  // Orders of the axes: nodes that meshes divide into, with three axes of two ranks, and nodes that they do not.
  for (const auto& [gpus, gpus_per_node] : {std::pair{8, 2}, std::pair{6, 4}}) {
    PlanQuestion asked = question("llama-1m", "v100", gpus, 24, 64);
    asked.settings = {"--training.micro_batch_size=1", "--training.recompute=none",
                      "--parallelism.pipeline_parallel_schedule=1F1B"};
    requests.push_back(read_plan_request(asked));
    requests.back().machine.nodes.front().num_devices = gpus_per_node;
  }
  return requests;
}

// Claim (plans): `echelon plan` finds what timing every layout finds, where that is feasible. No
//   bound of its search exceeds the values of a blueprint, and `train` accepts what it lists.
// Bound: equal for 728 layouts, on GPUs with axes in any order and on a host whose ranks share
//   cores; 200 random requests.
// Tests: Plan
TEST(Plan, IsThatOfTimingEveryLayout) {
  for (const PlanRequest& request : small_requests()) {
    const PlanResult found = find_plans(request), all = find_plans_exhaustively(request);
    SCOPED_TRACE(
        fmt::format("{} of {}: {} layouts", request.num_devices, request.machine.name, all.num_configurations));
    EXPECT_EQ(found.num_configurations, all.num_configurations);
    EXPECT_LT(found.num_evaluated, all.num_evaluated);
    ASSERT_EQ(found.plans.size(), all.plans.size());
    for (std::size_t i = 0; i < all.plans.size(); ++i) {
      EXPECT_EQ(found.plans[i].outcome.step_seconds, all.plans[i].outcome.step_seconds);
      EXPECT_EQ(found.plans[i].outcome.peak_memory_bytes(), all.plans[i].outcome.peak_memory_bytes());
    }
  }
}

void expect_plans_of_timing_all(const PlanRequest& request) {
  const PlanResult found = find_plans(request), all = find_plans_exhaustively(request);
  EXPECT_EQ(found.num_configurations, all.num_configurations);
  EXPECT_FALSE(all.plans.empty());
  ASSERT_EQ(found.plans.size(), all.plans.size());
  for (std::size_t i = 0; i < all.plans.size(); ++i) {
    EXPECT_EQ(found.plans[i].outcome.step_seconds, all.plans[i].outcome.step_seconds);
    EXPECT_EQ(found.plans[i].outcome.peak_memory_bytes(), all.plans[i].outcome.peak_memory_bytes());
  }
}

// Of adapters, which alone have gradients and optimizer states: where memory is short and where it is not.
TEST(Plan, OfAdaptersIsThatOfTimingEveryLayout) {
  for (const char* targets : {"all-linear", "c_attn"}) {
    PlanQuestion asked = question("gpt2-124m", "v100", 4, 4, 256);
    asked.settings = {"--lora.rank=8", fmt::format("--lora.target_modules={}", targets),
                      "--training.micro_batch_size=1", "--parallelism.pipeline_parallel_schedule=1F1B",
                      "--training.recompute_method=uniform"};
    PlanRequest request = read_plan_request(asked);
    SCOPED_TRACE(targets);
    expect_plans_of_timing_all(request);
    // Not enough for the fastest layout.
    DeviceSpec& device = request.machine.nodes.front().device;
    device.memory_bytes = device.reserved_bytes + find_plans(request).plans.front().outcome.peak_memory_bytes();
    expect_plans_of_timing_all(request);
    request.objective = PlanObjective::memory;
    expect_plans_of_timing_all(request);
  }
}

// 8.03e9 parameters of 2 bytes, and 21e6 of adapters with gradients and optimizer states.
TEST(Plan, CountsStatesOfAdaptersAlone) {
  PlanQuestion asked = question("llama3-8b", "h100", 8, 8, 4096);
  asked.settings = {"--lora.rank=8", "--training.dtype=bfloat16", "--training.micro_batch_size=1",
                    "--parallelism.pipeline_parallel_degree=1", "--parallelism.tensor_parallel_degree=1"};
  const PlanRequest request = read_plan_request(asked);
  EXPECT_THAT(to_text(find_plans(request), request), testing::HasSubstr("states are 15.3 GiB"));
}

// Experts on one rank, over ranks, and by their features, on nodes of two devices.
TEST(Plan, OfAMixtureIsThatOfTimingEveryLayout) {
  for (const auto& [objective, load] : {std::pair{"time", "balanced"}, {"memory", "balanced"}, {"time", "zipf:1.2"}}) {
    PlanQuestion asked = question("mixtral-30m", "h100", 4, 4, 64);
    asked.objective = objective;
    asked.expert_load = load;
    asked.settings = {"--training.micro_batch_size=1", "--training.recompute=none",
                      "--parallelism.pipeline_parallel_schedule=1F1B"};
    PlanRequest request = read_plan_request(asked);
    request.machine.nodes.front().num_devices = 2;
    const PlanResult found = find_plans(request), all = find_plans_exhaustively(request);
    EXPECT_EQ(found.num_configurations, all.num_configurations);
    ASSERT_EQ(found.plans.size(), all.plans.size());
    EXPECT_TRUE(std::ranges::any_of(all.plans, [](const Plan& plan) { return plan.choice.shape.ep > 1; }));
    for (std::size_t i = 0; i < all.plans.size(); ++i) {
      EXPECT_EQ(found.plans[i].outcome.step_seconds, all.plans[i].outcome.step_seconds);
      EXPECT_EQ(found.plans[i].outcome.peak_memory_bytes(), all.plans[i].outcome.peak_memory_bytes());
      EXPECT_EQ(plan_of(all.plans[i].config, request).choice.shape, all.plans[i].choice.shape);
    }
  }
}

/// A small mixture on nodes of two devices, four in all: the experts of a layer may be on both nodes.
PlanQuestion mixture_over_nodes() {
  PlanQuestion asked = question("mixtral-30m", "h100", 4, 4, 64);
  asked.settings = {"--training.micro_batch_size=1", "--training.recompute=none",
                    "--parallelism.pipeline_parallel_schedule=1F1B"};
  return asked;
}
PlanRequest on_nodes_of_two(const PlanQuestion& asked) {
  PlanRequest request = read_plan_request(asked);
  request.machine.nodes.front().num_devices = 2;
  return request;
}

// Three ranks of dp 3 x tp 2 have the experts of a layer, on nodes of two devices or of three.
TEST(Plan, OfExpertGroupsWithPartsOfAxesIsThatOfTimingEveryLayout) {
  for (const int of_node : {2, 3}) {
    PlanQuestion asked = question("mixtral-30m", "h100", 6, 6, 64);
    asked.settings = {"--training.micro_batch_size=1", "--training.recompute=none", "--model.num_experts=6",
                      "--parallelism.pipeline_parallel_degree=1", "--parallelism.pipeline_parallel_schedule=1F1B"};
    PlanRequest request = read_plan_request(asked);
    request.machine.nodes.front().num_devices = of_node;
    const auto shapes = PlanSpace(request).shapes();
    EXPECT_TRUE(std::ranges::any_of(shapes, [](const PlanShape& s) { return s.tp == 2 && s.ep == 3 && s.etp == 1; }));
    SCOPED_TRACE(of_node);
    expect_plans_of_timing_all(request);
  }
}

// One hop, two or tokens to all, and several bounds; with uneven loads too, of which the most loaded rank takes several
// rounds.
TEST(Plan, OfEachWayToExchangeRowsIsThatOfTimingEveryLayout) {
  for (const char* load : {"balanced", "zipf:1.2"})
    for (const char* fixed : {"", "--parallelism.expert_dispatch=hierarchical", "--parallelism.expert_dispatch=direct",
                              "--parallelism.expert_dispatch=all_gather", "--moe.dispatch_bound=0.5"}) {
      PlanQuestion asked = mixture_over_nodes();
      asked.expert_load = load;
      if (*fixed != 0) asked.settings.emplace_back(fixed);
      const PlanRequest request = on_nodes_of_two(asked);
      SCOPED_TRACE(fmt::format("{} {}", load, fixed));
      expect_plans_of_timing_all(request);
      std::set<std::pair<std::int64_t, double>> ways;
      const PlanSpace space(request);
      for (const PlanShape& shape : space.shapes())
        if (shape.ep == 4) ways.insert({shape.ranks_per_node, shape.dispatch_bound});
      const std::size_t num_hops = std::string_view(fixed).find("dispatch=") == std::string_view::npos ? 2 : 1,
                        num_bounds = request.fixes("moe.dispatch_bound") ? 1
                                     : *load == 'z'                      ? 3
                                                                         : 2;
      EXPECT_EQ(ways.size(), num_hops * num_bounds);
    }
}

// Of random meshes: with the whole nodes that orders are searched by, a run finds as many neighbours on each node.
TEST(Plan, FillsNodesWhereARunDoes) {
  PlanQuestion asked = question("qwen3-30b-a3b", "h100", 64, 64, 1024);
  asked.settings = {"--model.num_hidden_layers=2", "--training.recompute=none"};
  const PlanRequest request = read_plan_request(asked);
  const PlanSpace space(request);
  std::mt19937 random(5);
  int num_filled = 0, num_others = 0;
  for (int i = 0; i < 4000; ++i) {
    const PlanShape& shape = space.shapes()[random() % space.shapes().size()];
    if (shape.ranks_per_node <= 1) continue;
    PlanShape direct = shape;
    direct.ranks_per_node = 0;
    const std::vector<PlanData> data = space.data_layouts(shape);
    PlanChoice choice = {.shape = direct, .data = data[random() % data.size()]};
    const std::vector<AxisOrder>& orders = space.orders(direct, choice.data);
    choice.order = orders[random() % orders.size()];
    RunConfig config = space.config_of(choice);
    config.parallelism.ranks_per_node = shape.ranks_per_node;
    const bool fills = fills_nodes(config.mesh_shape(), shape.ranks_per_node);
    EXPECT_EQ(ep_neighbours_on_node(config) == shape.ranks_per_node, fills) << name_of(choice.order);
    ++(fills ? num_filled : num_others);
  }
  EXPECT_GT(num_filled, 100);
  EXPECT_GT(num_others, 100);
}

// A capacity changes what is learned, so it is the user's choice; and then no bound is searched.
TEST(Plan, KeepsACapacityAndSaysSo) {
  PlanQuestion asked = mixture_over_nodes();
  asked.settings.emplace_back("--moe.capacity_factor=1.5");
  const PlanRequest request = on_nodes_of_two(asked);
  const PlanSpace space(request);
  for (const PlanShape& shape : space.shapes()) EXPECT_EQ(shape.dispatch_bound, MoeConfig().dispatch_bound);
  const PlanResult found = find_plans(request);
  EXPECT_EQ(found.plans.front().config.moe.capacity_factor, 1.5);
  EXPECT_THAT(to_text(found, request), HasSubstr("moe.capacity_factor = 1.5 is kept: experts drop rows above it"));
  const PlanRequest dropless = on_nodes_of_two(mixture_over_nodes());
  EXPECT_THAT(to_text(find_plans(dropless), dropless), testing::Not(HasSubstr("capacity")));
}

// One layer has no experts.
TEST(Plan, OfAMixtureWithDenseLayersIsThatOfTimingEveryLayout) {
  PlanQuestion asked = question("qwen3-30b-a3b", "h100", 4, 4, 64);
  asked.settings = {
      "--training.micro_batch_size=1", "--training.recompute=none", "--parallelism.pipeline_parallel_schedule=1F1B",
      "--model.num_hidden_layers=4",   "--model.num_experts=8",     "--model.mlp_only_layers=[0]"};
  const PlanRequest request = read_plan_request(asked);
  const PlanResult found = find_plans(request), all = find_plans_exhaustively(request);
  EXPECT_EQ(found.num_configurations, all.num_configurations);
  ASSERT_EQ(found.plans.size(), all.plans.size());
  for (std::size_t i = 0; i < all.plans.size(); ++i)
    EXPECT_EQ(found.plans[i].outcome.step_seconds, all.plans[i].outcome.step_seconds);
}

// With every degree of context parallelism, and with a fixed one where replicas alone would be left.
TEST(Plan, OfLongSequencesIsThatOfTimingEveryLayout) {
  for (const char* objective : {"time", "memory"}) {
    PlanQuestion asked = question("llama-1m", "v100", 4, 2, 32768);
    asked.objective = objective;
    asked.settings = {"--model.max_position_embeddings=32768", "--training.micro_batch_size=1",
                      "--training.recompute_method=uniform", "--parallelism.pipeline_parallel_schedule=1F1B"};
    for (const bool is_fixed : {false, true}) {
      if (is_fixed) asked.settings.emplace_back("--parallelism.context_parallel_degree=4");
      const PlanRequest request = read_plan_request(asked);
      const PlanResult found = find_plans(request), all = find_plans_exhaustively(request);
      EXPECT_EQ(found.num_configurations, all.num_configurations);
      ASSERT_EQ(found.plans.size(), all.plans.size());
      EXPECT_GT(all.plans.size(), is_fixed ? 0 : 4);
      for (std::size_t i = 0; i < all.plans.size(); ++i) {
        EXPECT_EQ(found.plans[i].outcome.step_seconds, all.plans[i].outcome.step_seconds);
        EXPECT_EQ(found.plans[i].outcome.peak_memory_bytes(), all.plans[i].outcome.peak_memory_bytes());
      }
    }
  }
}

// One sequence, more devices than heads: without context parallelism most of them would be stages of a pipeline.
TEST(Plan, SaysWhatContextParallelismIsWorth) {
  PlanQuestion asked = question("llama-1m", "h100", 16, 1, 32768);
  asked.settings = {"--model.max_position_embeddings=32768"};
  const PlanRequest request = read_plan_request(asked);
  const PlanResult result = find_plans(request);
  EXPECT_GT(result.plans.front().choice.shape.cp, 1);
  ASSERT_TRUE(result.without_context);
  EXPECT_EQ(result.without_context->choice.shape.cp, 1);
  PlanRequest without = request;
  fix_choice("--parallelism.context_parallel_degree=1", without);
  EXPECT_EQ(result.without_context->outcome.step_seconds, find_plans(without).plans.front().outcome.step_seconds);
  EXPECT_THAT(to_text(result, request),
              HasSubstr(fmt::format("{:.2f} times as long", result.without_context->outcome.step_seconds /
                                                                result.plans.front().outcome.step_seconds)));
}

// One head of one layer and one sequence: 8 devices have nothing else to divide.
TEST(Plan, FindsContextParallelismWhereNothingElseIsLegal) {
  PlanQuestion asked = question("llama-1m", "h100", 8, 1, 65536);
  asked.settings = {"--model.max_position_embeddings=65536", "--model.num_hidden_layers=1",
                    "--model.num_attention_heads=1", "--model.num_key_value_heads=1"};
  const PlanRequest request = read_plan_request(asked);
  const PlanResult result = find_plans(request);
  EXPECT_EQ(result.plans.front().choice.shape.cp, 8);
  EXPECT_FALSE(result.without_context);
  EXPECT_THAT(to_text(result, request), HasSubstr("nothing without it"));
}

TEST(Plan, DependsOnWorkAndMoreRowsKeepTheFirst) {
  for (PlanRequest request : small_requests()) {
    SCOPED_TRACE(fmt::format("{} of {}", request.num_devices, request.machine.name));
    request.work = find_plans(request).work / 8 + 1;
    request.top = 1;
    const PlanResult alone = find_plans(request);
    const PlanResult again = find_plans(request);
    request.top = 4;
    const PlanResult more = find_plans(request);
    EXPECT_EQ(alone.work, again.work);
    ASSERT_FALSE(alone.plans.empty());
    EXPECT_TRUE(alone.plans.front().choice == again.plans.front().choice);
    EXPECT_FALSE(is_better(request.objective, alone.plans.front(), more.plans.front()));
  }
}

// A clock on which every reading is a thousand seconds after the one before.
TEST(Plan, IsTheSameOnASlowMachine) {
  PlanRequest request = small_requests()[2];
  request.work = find_plans(request).work / 4;
  PlanRequest slow = request;
  slow.clock = [seconds = std::make_shared<double>(0)] { return *seconds += 1000; };
  const PlanResult usual = find_plans(request), slowed = find_plans(slow);
  EXPECT_FALSE(usual.is_complete);
  EXPECT_GE(slowed.seconds, 1000);
  EXPECT_EQ(slowed.work, usual.work);
  EXPECT_EQ(slowed.within, usual.within);
  ASSERT_EQ(slowed.plans.size(), usual.plans.size());
  for (std::size_t i = 0; i < usual.plans.size(); ++i) EXPECT_TRUE(slowed.plans[i].choice == usual.plans[i].choice);
}

TEST(Plan, WhoseTimeIsOverIsOneThatFitsAndSaysHowMuchBetterOthersMayBe) {
  for (PlanRequest request : small_requests()) {
    const PlanResult best = find_plans(request);
    request.seconds = 1e-9;
    const PlanResult found = find_plans(request);
    SCOPED_TRACE(fmt::format("{} of {}", request.num_devices, request.machine.name));
    EXPECT_TRUE(best.is_complete);
    EXPECT_FALSE(found.is_complete);
    EXPECT_LT(found.num_evaluated, best.num_configurations);
    ASSERT_FALSE(found.plans.empty());
    const auto figure_of = [&](const PlanResult& result) {
      const Simulation& outcome = result.plans.front().outcome;
      return request.objective == PlanObjective::memory ? static_cast<double>(outcome.peak_memory_bytes())
                                                        : outcome.step_seconds;
    };
    EXPECT_TRUE(found.plans.front().outcome.fits());
    EXPECT_LE(figure_of(best), figure_of(found) * (1 + 1e-9));
    EXPECT_GE(figure_of(best), figure_of(found) * (1 - found.within) * (1 - 1e-9));
    EXPECT_THAT(to_text(found, request), HasSubstr("--seconds gives it more"));
    EXPECT_EQ(nlohmann::json::parse(to_json(found, request)).at("complete"), false);
  }
}

/// Two nodes of 8 devices, of which the second has six times the rate.
PlanRequest request_of_two_kinds() {
  PlanQuestion asked = question("llama3-8b", "h100", 16, 64, 8192);
  asked.profile = "ideal";
  PlanRequest request = read_plan_request(asked);
  request.machine.nodes.push_back(request.machine.nodes.front());
  request.machine.nodes.front().count = 1;
  for (auto& [name, rates] : request.machine.nodes.front().device.formats) rates.peak_flops /= 6;
  return request;
}

TEST(Plan, KeepsItsLimitWhereNodesDiffer) {
  PlanRequest request = request_of_two_kinds();
  for (const std::int64_t work : {1'000'000, 2'000'000}) {
    request.work = work;
    const PlanResult found = find_fitting_plans(request);
    EXPECT_FALSE(found.is_complete);
    EXPECT_FALSE(found.plans.empty());
    EXPECT_LE(found.work, work + work / 10);
  }
  request.work = 1000;
  const PlanResult found = find_fitting_plans(request);
  EXPECT_LE(found.work, 200'000);
  ASSERT_FALSE(found.plans.empty());
  EXPECT_THAT(to_text(found, request), HasSubstr("--work=1000 is less than the first layout takes; use more"));
}

// A clock that is a second later whenever it is read.
TEST(Plan, OfAClockEndsWithinIt) {
  PlanRequest request = request_of_two_kinds();
  request.seconds = 400;
  request.clock = [seconds = std::make_shared<double>(0)] { return *seconds += 1; };
  EXPECT_LE(find_fitting_plans(request).seconds, 440);
}

TEST(Plan, IsMadeOnTheDocumentedMachine) {
  std::ifstream file(std::string(ECHELON_SOURCE_DIR) + "/docs/reference/machines.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  const auto first = page.find("```toml\n") + 8;
  const std::string path = scratch_folder() + "/ours.toml";
  std::ofstream(path) << page.substr(first, page.find("```", first) - first);
  for (const std::int64_t gpus : {8, 40}) {
    PlanQuestion asked = question("llama-10m", path, gpus, 40, 64);
    asked.work = 500'000;
    const PlanRequest request = read_plan_request(asked);
    EXPECT_EQ(request.base.training.dtype, DType::float16);
    EXPECT_FALSE(find_fitting_plans(request).plans.empty()) << gpus;
  }
}

// Stages of the only pipeline rank that gain nothing are not listed.
TEST(Plan, OfOnePipelineRankHasOneStageUnlessMoreAreFaster) {
  PlanQuestion asked = question("llama3-8b", "h100", 32, 64, 8192);
  asked.top = 2;
  const PlanRequest request = read_plan_request(asked);
  for (const Plan& plan : find_plans(request).plans)
    EXPECT_TRUE(plan.choice.shape.pp > 1 || plan.choice.pipeline.num_virtual == 1);
}

TEST(Plan, OfCostComparesPricesAndIsInTimeFirst) {
  PlanQuestion asked = question("llama-10m", "h100", 8, 8, 64);
  asked.objective = "cost";
  asked.price = 2.5;
  asked.training.tokens = "1B";
  PlanRequest request = read_plan_request(asked);
  const PlanResult cheapest = find_plans(request);
  ASSERT_GE(cheapest.plans.size(), 2U);
  EXPECT_LE(price_per_token(cheapest.plans[0], request), price_per_token(cheapest.plans[1], request));
  const std::string text = to_text(cheapest, request);
  EXPECT_THAT(text, testing::ContainsRegex("devices +price/M +s/step"));
  EXPECT_THAT(text, HasSubstr("for a million tokens on"));
  EXPECT_FALSE(draws_of(cheapest.plans, request));
  const auto fastest =
      std::ranges::min_element(cheapest.plans, {}, [](const Plan& plan) { return plan.outcome.step_seconds; });
  ASSERT_FALSE(fastest == cheapest.plans.begin());
  asked.training.hours = 1.001 * long_run(*fastest, request).seconds / 3600;
  request = read_plan_request(asked);
  const PlanResult in_time = find_plans(request);
  EXPECT_EQ(in_time.plans.front().config.mesh_shape().num_ranks(), fastest->config.mesh_shape().num_ranks());
  EXPECT_THAT(to_text(in_time, request), HasSubstr("it takes more than --hours="));
}

TEST(Plan, NamesTheLayoutThatNeedsLeastWhereNothingFits) {
  PlanRequest request = small_requests()[1];
  request.machine.nodes.front().device.memory_bytes = 1 << 28;
  const PlanResult found = find_plans(request), all = find_plans_exhaustively(request);
  EXPECT_TRUE(found.plans.empty());
  ASSERT_TRUE(found.nearest && all.nearest);
  EXPECT_EQ(found.nearest->outcome.peak_memory_bytes(), all.nearest->outcome.peak_memory_bytes());
  EXPECT_TRUE(found.is_nearest_proven);
  EXPECT_THAT(to_text(found, request), HasSubstr("Nothing fits: above is what needs least memory."));
}

// 18 bytes of a parameter on all devices together: bfloat16, and float32 gradients, master weights and two moments.
TEST(Plan, NamesALayoutCloseToTheLeastWhereNothingOfALargeModelFits) {
  const PlanRequest request = read_plan_request(question("deepseek-v3", "h100", 64, 128, 8192));
  const PlanResult found = find_plans(request);
  ASSERT_TRUE(found.plans.empty() && found.nearest);
  EXPECT_TRUE(found.is_complete);
  EXPECT_FALSE(found.is_nearest_proven);
  const double states = 18.0 * static_cast<double>(request.base.model.num_parameters()) / 64,
               bytes = static_cast<double>(found.nearest->outcome.peak_memory_bytes());
  EXPECT_GT(bytes, states);
  EXPECT_LT(bytes, 1.08 * states);
  EXPECT_THAT(to_text(found, request), HasSubstr("Nothing fits: above is what was found to need least memory."));
}

TEST(Plan, IsAsGoodAsAnyOf200RandomLayouts) {
  const PlanRequest request = read_plan_request(question("llama3-8b", "h100", 16, 64, 8192));
  const PlanSpace space(request);
  EXPECT_GT(space.num_configurations(), 1000000);
  const PlanResult found = find_plans(request);
  std::mt19937 random(7);
  const auto any_of = [&](const auto& all) { return all[random() % all.size()]; };
  for (int i = 0; i < 200; ++i) {
    PlanChoice choice;
    choice.shape = any_of(space.shapes());
    choice.pipeline = any_of(space.pipelines(choice.shape));
    choice.recompute = any_of(space.recomputes(choice.pipeline));
    choice.data = any_of(space.data_layouts(choice.shape));
    choice.order = any_of(space.orders(choice.shape, choice.data));
    EXPECT_FALSE(is_better(request.objective, evaluate(request, choice), found.plans.front()));
  }
}

// Other rates, another time for the same memory; and no layout is faster than on the ideal machine.
TEST(Plan, IsTimedAtTheRatesOfItsProfile) {
  PlanQuestion asked = question("llama-10m", "h100", 4, 16, 64);
  const PlanResult usual = find_plans(read_plan_request(asked));
  asked.profile = "ideal";
  const PlanRequest ideal_request = read_plan_request(asked);
  const PlanResult ideal = find_plans(ideal_request);
  EXPECT_EQ(usual.num_configurations, ideal.num_configurations);
  const PlanChoice& choice = usual.plans.front().choice;
  const Plan at_ideal = evaluate(ideal_request, choice);
  EXPECT_GT(usual.plans.front().outcome.step_seconds, at_ideal.outcome.step_seconds);
  EXPECT_GE(at_ideal.outcome.step_seconds, ideal.plans.front().outcome.step_seconds);
  EXPECT_EQ(usual.plans.front().outcome.peak_memory_bytes(), at_ideal.outcome.peak_memory_bytes());
  EXPECT_THAT(to_text(ideal, ideal_request), HasSubstr("timed at the rates of the machine file"));
  asked.profile = "megatron";
  EXPECT_THAT(sentence_of(asked), HasSubstr("did you mean"));
}

// How much is looked at, not how long that takes: of three million layouts.
TEST(Plan, OfALargeModelTakesFewBlueprints) {
  PlanQuestion asked = question("gpt3-175b", "a100-80", 4096, 4096, 2048);
  asked.settings = {"--parallelism.pipeline_parallel_schedule=1F1B"};
  asked.top = 1;
  const PlanResult found = find_plans(read_plan_request(asked));
  EXPECT_GT(found.num_configurations, 2000000);
  EXPECT_LE(found.num_evaluated, 5);
  EXPECT_LE(found.num_stepped, 100);
  ASSERT_EQ(found.plans.size(), 1U);
  EXPECT_EQ(found.within, 0);
}

TEST(Plan, OfRandomRequestsIsOneThatTrainTakes) {
  std::mt19937 random(3);
  const auto any_of = [&](const auto& all) { return *(std::begin(all) + random() % std::size(all)); };
  constexpr const char *models[] = {"gpt2-124m", "llama-100m", "qwen2-0.5b", "llama-10m"},
                       *machines[] = {"v100", "a100-80", "h100"},
                       *sets[] = {"--training.recompute=full", "--training.recompute=none",
                                  "--parallelism.sequence_parallel=true", "--training.dtype=float32"};
  constexpr std::int64_t gpus[] = {1, 2, 3, 4};
  int num_plans = 0;
  for (int i = 0; i < 200; ++i) {
    const std::int64_t n = any_of(gpus);
    PlanQuestion asked =
        question(any_of(models), any_of(machines), n, n * static_cast<std::int64_t>(1 + random() % 3), 1024);
    asked.top = 2;
    asked.within_percent = 50;  // what is legal is the question here, not what is best
    asked.settings = {any_of(sets), "--training.micro_batch_size=1", "--training.recompute_method=uniform",
                      fmt::format("--parallelism.pipeline_parallel_schedule={}", any_of(all_schedules()).name)};
    PlanRequest request = read_plan_request(asked);
    request.machine.nodes.front().num_devices = 2;  // so that orders of the axes matter
    PlanResult found;
    try {
      found = find_fitting_plans(request);
    } catch (const Error&) {
      continue;  // the fixed keys leave nothing, in a sentence
    }
    for (const Plan& plan : found.plans) {
      const std::string path = scratch_folder() + "/plan_of_random_request.toml";
      std::ofstream(path) << to_toml(plan.config);
      const RunConfig read = read_run_config({.path = path, .arguments = {}, .read_model = {}});
      EXPECT_EQ(read, plan.config);
      const Blueprint blueprint(read);
      EXPECT_EQ(blueprint.mesh().num_ranks(), n);
      ++num_plans;
    }
  }
  EXPECT_GT(num_plans, 150);
}

TEST(Plan, CountsOrdersThatDifferAsMeshes) {
  PlanQuestion asked = question("llama-1m", "h100", 16, 16, 64);
  const PlanRequest request = read_plan_request(asked);
  const PlanSpace space(request);
  std::int64_t most = 0, sum = 0;
  for (const PlanShape& shape : space.shapes()) {
    std::int64_t of_shape = 0;
    for (const PlanPipeline& pipeline : space.pipelines(shape)) of_shape += std::ssize(space.recomputes(pipeline));
    for (const PlanData& data : space.data_layouts(shape)) {
      std::vector<MeshShape> meshes;
      for (const AxisOrder& order : space.orders(shape, data)) {
        const MeshShape mesh = space.config_of({shape, {}, {}, data, order}).mesh_shape();
        EXPECT_EQ(std::find(meshes.begin(), meshes.end(), mesh), meshes.end()) << name_of(order);
        meshes.push_back(mesh);
      }
      std::int64_t num_permutations = 1;
      const int num_axes_of_ranks = (shape.tp > 1) + (shape.pp > 1) + (data.replicate > 1) + (data.shard > 1);
      for (int i = 2; i <= num_axes_of_ranks; ++i) num_permutations *= i;
      EXPECT_EQ(std::ssize(meshes), num_permutations);
      EXPECT_EQ(space.orders(shape, data).front(), AxisOrder());
      most = std::max(most, num_permutations);
      sum += of_shape * num_permutations;
    }
  }
  EXPECT_EQ(most, 24);
  EXPECT_EQ(space.num_configurations(), sum);
  asked.settings = {"--parallelism.order=pp-tp-dp_shard"};
  const PlanRequest fixed = read_plan_request(asked);
  PlanSpace(fixed).for_each([](const PlanChoice& choice) {
    ASSERT_EQ(name_of(choice.order), "pp-tp-dp_shard");
    ASSERT_EQ(choice.data.replicate, 1);  // it has no place for them
  });
}

TEST(Plan, SaysWhatWouldHelp) {
  PlanQuestion asked = question("llama3-8b", "a100-40", 2, 4, 2048);
  asked.settings = {"--training.recompute=none"};
  PlanResult found = find_plans(read_plan_request(asked));
  ASSERT_TRUE(found.nearest);
  ASSERT_FALSE(found.suggestions.empty());
  EXPECT_THAT(found.suggestions.back(), HasSubstr("--gpus="));
}

// One rank would have more microbatches than a step may have; 1,024 ranks have 128 of each other's.
TEST(Plan, TakesABatchThatIsTooLargeForOneRank) {
  const PlanResult found = find_plans(read_plan_request(question("gpt2-124m", "h100", 1024, 131072, 512)));
  ASSERT_FALSE(found.plans.empty());
  EXPECT_EQ(found.plans.front().config.training.global_batch_size, 131072);
  EXPECT_LE(found.plans.front().config.num_microbatches(), 128);
  PlanQuestion asked = question("gpt2-124m", "h100", 1, 131072, 512);
  asked.settings = {"--training.micro_batch_size=1"};
  EXPECT_THAT(sentence_of(asked), HasSubstr("makes 131072 microbatches per rank and step"));
}

/// A config file of a model and of what else `more` says.
std::string file_of_a_model(const std::string& more) {
  std::string path = scratch_folder() + "/model_alone.toml";
  std::ofstream(path) << "[model]\npreset = \"gpt2-124m\"\n[training]\nglobal_batch_size = 8\nseq_len = 1024\n" << more;
  return path;
}

// The dtype that a config has by default is float32, which is five to thirteen times slower on a GPU.
TEST(Plan, TakesTheFastestFormatUnlessTheConfigNamesOne) {
  const auto request_of = [](const std::string& model, const std::string& machine,
                             const std::vector<std::string>& settings = {}) {
    PlanQuestion asked = question(model, machine, 4, 8, 1024);
    asked.settings = settings;
    return read_plan_request(asked);
  };
  for (const std::string& model : {std::string("gpt2-124m"), file_of_a_model("")}) {
    EXPECT_EQ(request_of(model, "a100-40").base.training.dtype, DType::bfloat16);
    EXPECT_EQ(request_of(model, "v100").base.training.dtype, DType::float16);
    EXPECT_TRUE(request_of(model, "v100").chooses_dtype);
    const PlanRequest named = request_of(model, "v100", {"--training.dtype=float32"});
    EXPECT_EQ(named.base.training.dtype, DType::float32);
    EXPECT_FALSE(named.chooses_dtype);
  }
  const PlanRequest of_file = request_of(file_of_a_model("dtype = \"float32\"\n"), "a100-40");
  EXPECT_EQ(of_file.base.training.dtype, DType::float32);
  EXPECT_FALSE(of_file.chooses_dtype);
  PlanQuestion asked = question("llama-1m", "", 4, 4, 64);
  asked.this_machine = some_host;
  EXPECT_EQ(read_plan_request(asked).base.training.dtype, DType::float32);  // whose products alone were measured
}

TEST(Plan, SaysWhatOtherFormatsWouldTake) {
  PlanQuestion asked = question(file_of_a_model(""), "v100", 2, 8, 1024);
  asked.top = 1;
  const PlanRequest request = read_plan_request(asked);
  const PlanResult found = find_plans(request);
  ASSERT_EQ(found.in_other_formats.size(), 1U);
  const Plan& in_float32 = found.in_other_formats.front();
  EXPECT_EQ(in_float32.config.training.dtype, DType::float32);
  EXPECT_GT(in_float32.outcome.step_seconds, 3 * found.plans.front().outcome.step_seconds);
  EXPECT_THAT(to_text(found, request), HasSubstr("dtype float16, the fastest of 'v100', since none is named; the first "
                                                 "layout in float32: "));
  asked.settings = {"--training.dtype=float16"};
  const PlanRequest named = read_plan_request(asked);
  const PlanResult as_named = find_plans(named);
  EXPECT_TRUE(as_named.in_other_formats.empty());
  EXPECT_EQ(as_named.plans.front().outcome.step_seconds, found.plans.front().outcome.step_seconds);
}

TEST(Plan, LeavesRoomForTheDriverAndNccl) {
  PlanQuestion asked = question("llama3-8b", "a100-40", 8, 64, 4096);
  asked.within_percent = 20;
  const PlanRequest request = read_plan_request(asked);
  const DeviceSpec& device = request.machine.nodes.front().device;
  const PlanResult found = find_plans(request);
  ASSERT_FALSE(found.plans.empty());
  for (const Plan& plan : found.plans)
    EXPECT_LE(plan.outcome.peak_memory_bytes() + device.reserved_bytes + (std::int64_t{36} << 20), device.memory_bytes);
  EXPECT_THAT(to_text(found, request), HasSubstr("for the driver, libraries and NCCL)"));
}

TEST(Plan, RefusesWithASentence) {
  EXPECT_THAT(sentence_of(question("llama-10m", "h100", 0, 4, 64)), HasSubstr("--gpus=0"));
  EXPECT_THAT(sentence_of(question("llama-10m", "h101", 8, 8, 64)),
              ::testing::AllOf(HasSubstr("h101"), HasSubstr("h100")));
  EXPECT_THAT(sentence_of(question("lama-10m", "h100", 8, 8, 64)),
              ::testing::AllOf(HasSubstr("lama-10m"), HasSubstr("llama-10m")));
  PlanQuestion asked = question("llama-10m", "h100", 7, 6, 64);
  asked.settings = {"--parallelism.pipeline_parallel_degree=1"};
  EXPECT_THAT(sentence_of(asked), HasSubstr("--gpus=7"));
  asked = question("llama-10m", "h100", 8, 8, 64);
  asked.settings = {"--parallelism.tensor_parallel_degree=3"};
  EXPECT_THAT(sentence_of(asked), HasSubstr("tensor_parallel_degree"));
  asked.settings = {"--parallelism.tensor_parallel_degre=2"};
  EXPECT_THAT(sentence_of(asked), HasSubstr("did you mean parallelism.tensor_parallel_degree?"));
  asked.settings = {"--training.recompute=none", "--training.recompute_num_layers=99"};
  EXPECT_THAT(sentence_of(asked), HasSubstr("training.recompute_num_layers"));
  asked.settings = {};
  asked.seconds = -1;
  EXPECT_THAT(sentence_of(asked), HasSubstr("--seconds=-1 is not a time limit"));
  asked.seconds = 30;
  asked.objective = "tiem";
  EXPECT_THAT(sentence_of(asked), HasSubstr("did you mean time?"));
}

// What `train` would refuse whatever the layout is refused before the search.
TEST(Plan, RefusesFixedValuesThatNoLayoutMayHave) {
  const auto refusal = [](const std::string& setting, const std::string& model = "mixtral-30m") {
    PlanQuestion asked = question(model, "h100", 8, 8, 64);
    asked.settings = {"--" + setting};
    return sentence_of(asked);
  };
  EXPECT_EQ(refusal("parallelism.prefetch_depth=-1"), "parallelism.prefetch_depth = -1 is below 1 (use 1)");
  EXPECT_THAT(refusal("parallelism.prefetch_depth=1000000000"), HasSubstr("= 1000000000 is more than the"));
  EXPECT_EQ(refusal("parallelism.expert_tensor_parallel_degree=-1"),
            "parallelism.expert_tensor_parallel_degree = -1 is below 0 (use 0)");
  EXPECT_EQ(refusal("parallelism.zero_level=4"), "parallelism.zero_level = 4 is above 3 (use 3)");
  EXPECT_EQ(refusal("moe.dispatch_bound=0"), "moe.dispatch_bound = 0 is below 0.001 (use 0.001)");
  EXPECT_THAT(refusal("moe.dispatch_bound=nan"), HasSubstr("moe.dispatch_bound = nan is not a finite number"));
  EXPECT_EQ(refusal("training.micro_batch_size=0"), "training.micro_batch_size = 0 is below 1 (use 1)");
}

TEST(Plan, RefusesMoreDevicesThanADegreeMayHave) {
  EXPECT_EQ(sentence_of(question("llama-10m", "h100", 9'000'000'000'000'000'000, 8, 64)),
            "--gpus=9000000000000000000 is more than 1048576 devices (use 1048576)");
}

TEST(Plan, SaysWhyNoLayoutHasTheFixedKeys) {
  const auto refusal = [](const std::string& model, std::int64_t gpus, const std::vector<std::string>& settings) {
    PlanQuestion asked = question(model, "h100", gpus, 16, 64);
    asked.settings = settings;
    return sentence_of(asked);
  };
  EXPECT_EQ(
      refusal("llama-10m", 8, {"--parallelism.tensor_parallel_degree=4", "--parallelism.pipeline_parallel_degree=4"}),
      "parallelism.tensor_parallel_degree = 4 x parallelism.pipeline_parallel_degree = 4 make 16 ranks, more than "
      "--gpus=8 (use --gpus=16)");
  EXPECT_EQ(refusal("mixtral-8x7b", 16, {"--parallelism.expert_parallel_degree=16"}),
            "parallelism.expert_parallel_degree = 16 does not divide model.num_experts = 8 (use 8)");
  // Of two nodes of 8: experts of the first model are in one of them, of the second in both.
  EXPECT_THAT(refusal("mixtral-30m", 16, {"--parallelism.expert_dispatch=hierarchical"}),
              HasSubstr("no whole nodes divide model.num_experts = 8 (use 'auto')"));
  PlanQuestion asked = question("deepseek-v3-28m", "h100", 16, 16, 64);
  asked.settings = {"--parallelism.expert_dispatch=hierarchical"};
  const PlanRequest request = read_plan_request(asked);
  for (const PlanShape& shape : PlanSpace(request).shapes()) EXPECT_EQ(shape.ranks_per_node > 0, shape.ep > 1);
}

// 4 heads and 8 layers, with embedding and head: ten stages at most. Without shards a level above 1 shards nothing.
TEST(Plan, NamesTheClosestValuesOfFixedKeysThatNoLayoutHas) {
  const auto others = [](std::int64_t gpus, const std::vector<std::string>& settings) {
    PlanQuestion asked = question("llama-10m", "h100", gpus, 16, 64);
    asked.settings = settings;
    const std::string sentence = sentence_of(asked);
    return sentence.substr(std::min(sentence.size(), sentence.find("(use ")));
  };
  EXPECT_EQ(others(16, {"--parallelism.pipeline_parallel_degree=16"}),
            "(use parallelism.pipeline_parallel_degree = 8)");
  EXPECT_EQ(others(8, {"--training.micro_batch_size=3"}),
            "(use training.micro_batch_size = 2 or --global-batch-size=15)");
  EXPECT_EQ(others(8, {"--parallelism.data_parallel_replicate_degree=8", "--parallelism.zero_level=3"}),
            "(use parallelism.data_parallel_replicate_degree = 4 or parallelism.zero_level = 1)");
  EXPECT_EQ(others(8, {"--parallelism.pipeline_parallel_degree=8", "--parallelism.virtual_stages=2"}),
            "(use parallelism.pipeline_parallel_degree = 4 or parallelism.virtual_stages = 1)");
  const std::string recomputes = others(8, {"--training.recompute=none", "--training.recompute_num_layers=2"});
  EXPECT_EQ(recomputes.substr(0, 26), "(use training.recompute = ");
  EXPECT_THAT(recomputes, testing::EndsWith(" or training.recompute_num_layers = 1)"));
}

TEST(Plan, TakesZeroAsOpenWhereItIsTheDefault) {
  PlanQuestion asked = question("llama-1m", "h100", 4, 8, 32768);
  asked.settings = {"--model.max_position_embeddings=32768"};
  const PlanRequest open = read_plan_request(asked);
  const std::int64_t all = PlanSpace(open).num_configurations();
  for (const char* key : {"virtual_stages", "context_parallel_ulysses_degree", "expert_tensor_parallel_degree"}) {
    PlanRequest request = open;
    fix_choice(fmt::format("--parallelism.{}=0", key), request);
    EXPECT_EQ(PlanSpace(request).num_configurations(), all) << key;
  }
}

// 4 heads and 8 layers, with embedding and head: of 100 devices 20 at most divide a sequence.
TEST(Plan, NamesTheClosestBatchThatHasALayout) {
  PlanQuestion asked = question("llama-10m", "h100", 100, 8, 64);
  EXPECT_THAT(sentence_of(asked),
              HasSubstr("--gpus=100 has training.global_batch_size = 8 (use --global-batch-size=10)"));
  PlanRequest request = read_plan_request(asked);
  for (std::int64_t batch = 1; batch <= 10; ++batch) {
    request.base.training.global_batch_size = batch;
    EXPECT_EQ(PlanSpace::has_layouts(request), batch % 5 == 0) << batch;
  }
}

TEST(Plan, JsonHasWhatAProgramNeeds) {
  const PlanRequest request = small_requests().front();
  const auto json = nlohmann::json::parse(to_json(find_plans(request), request));
  EXPECT_GT(json.at("configurations"), 100);
  EXPECT_GT(json.at("evaluated"), 0);
  EXPECT_GT(json.at("seconds"), 0.0);
  const auto& first = json.at("plans").at(0);
  const double seconds = first.at("predicted_seconds");
  EXPECT_GT(seconds, 0);
  EXPECT_TRUE(first.at("price_per_million_tokens").is_null());  // no price is known
  EXPECT_EQ(json.at("profile"), "echelon");
  EXPECT_EQ(json.at("rates"),
            "the rates that Megatron-LM, DeepSpeed, llm-foundry and PyTorch FSDP have in common on A100 and H100, "
            "since Echelon was not measured on a GPU");
  EXPECT_LT(first.at("interval_seconds").at(0), seconds);
  EXPECT_GT(first.at("interval_seconds").at(1), seconds);
}

// 8 B on A100 at the rates of the machine file: faster than any software was.
TEST(Plan, SaysThatItIsAboveTheBestPublished) {
  PlanQuestion asked = question("llama3-8b", "a100-80", 16, 32, 4096);
  asked.profile = "ideal";
  asked.settings = {"--parallelism.tensor_parallel_degree=1", "--parallelism.pipeline_parallel_degree=1"};
  const PlanRequest request = read_plan_request(asked);
  const PlanResult found = find_plans(request);
  ASSERT_GT(found.plans.front().outcome.mfu(), 0.653);
  EXPECT_THAT(to_text(found, request), HasSubstr("% MFU is above the best published on A100 at this size: 64 %"));
  const auto json = nlohmann::json::parse(to_json(found, request));
  EXPECT_THAT(json.at("plans").at(0).at("warning").get<std::string>(), HasSubstr("at this size: 64 % (llm-foundry"));
  EXPECT_FALSE(json.at("plans").at(0).contains("interval_seconds"));
}

}  // namespace
}  // namespace echelon
