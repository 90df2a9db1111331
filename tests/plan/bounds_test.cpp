// No layout is faster or smaller than its bounds say, and its programs take what its blueprint takes: random layouts of
// several models and machines against their blueprints.
#include "plan/bounds/bounds.h"

#include "plan/bounds/layout_steps.h"
#include "plan/search/plan.h"
#include "plan/some_host.h"
#include "predict/documents/drawn_lengths.h"
#include "spec/config/config_reader.h"
#include "spec/machine/shipped_machines.h"
#include "train/data/described_documents.h"

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
  std::string expert_load = {};
  double mean_length = 0;  // of documents; 0: sequences are whole
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.model << " on " << c.gpus << " of " << c.machine;
}

PlanRequest request_of(const Case& c) {
  std::vector<std::string> settings = c.settings;
  if (c.machine.empty()) settings.emplace_back("--training.dtype=float32");
  PlanRequest request = read_plan_request({.model = c.model,
                                           .machine = c.machine,
                                           .gpus = c.gpus,
                                           .global_batch_size = c.batch,
                                           .seq_len = c.seq_len,
                                           .expert_load = c.expert_load,
                                           .settings = settings,
                                           .this_machine = some_host});
  if (c.mean_length > 0) {
    constexpr std::int64_t num_sequences = 5;
    const std::vector<std::int64_t> lengths =
        drawn_lengths(c.mean_length, 2 * c.mean_length, num_sequences * c.seq_len);
    request.documents = std::make_shared<DocumentLoads>(described_documents(request.base, lengths), num_sequences);
  }
  return request;
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

/// Of the order that represents the choice's.
TensorPlacement placement_of(const PlanChoice& choice, PlanOrders& orders) {
  const AxisOrder& order = orders.stand_in(choice.shape, choice.data, choice.order);
  for (const TensorPlacement each : orders.placements(choice.shape)) {
    const std::vector<AxisOrder>& there = orders.of(choice.shape, choice.data, each);
    if (std::find(there.begin(), there.end(), order) != there.end()) return each;
  }
  ADD_FAILURE() << name_of(order) << " has no placement";
  return any_placement;
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
    const Plan plan = evaluate(request, choice);
    SCOPED_TRACE(to_toml(plan.config).substr(to_toml(plan.config).find("[training]")));
    const double played = bounds.seconds(choice);
    EXPECT_LE(played, plan.outcome.step_seconds);
    const TensorPlacement placement = placement_of(choice, bounds.costs().orders());
    const double of_any_order = bounds.seconds_of_any_order(choice, placement, false),
                 of_lanes = bounds.seconds_of_any_order(choice, placement, true);
    EXPECT_LE(of_any_order, of_lanes);
    EXPECT_LE(of_lanes, played);
    const double clocked = bounds.clocked_pipeline_seconds(computation, placement);
    EXPECT_LE(clocked, of_any_order);
    const double unclocked = bounds.pipeline_seconds(computation, placement);
    EXPECT_LE(unclocked, clocked);
    constexpr PlanRecompute nothing = {};
    EXPECT_LE((1 - 1e-9) * bounds.pipeline_seconds({choice.shape, choice.pipeline, nothing}, placement), unclocked);
    const BlockOperations& recomputed = choice.recompute.operations;
    const std::int64_t bytes = plan.outcome.peak_memory_bytes();
    EXPECT_LE(bounds.recomputing_seconds(choice.shape, recomputed, placement, bytes), plan.outcome.step_seconds);
    EXPECT_LE(bounds.recomputing_seconds(choice.shape, recomputed, placement, PlanBounds::any_bytes), unclocked);
    EXPECT_LE(bounds.unclocked_seconds(choice, placement), of_any_order);
    EXPECT_LE(bounds.shape_seconds(choice.shape), unclocked * (1 + 1e-12));
    EXPECT_LE(bounds.unexchanged_seconds(choice.shape).value_or(0), bounds.shape_seconds(choice.shape));
    EXPECT_LE(bounds.bytes().of_layout(choice), plan.outcome.peak_memory_bytes());
    EXPECT_LE(bounds.bytes().of_pipeline(computation), bounds.bytes().of_layout(choice));
    EXPECT_LE(bounds.bytes().of_any_schedule(computation), bounds.bytes().of_pipeline(computation));
    EXPECT_LE(bounds.bytes().of_any_pipeline(choice.shape), bounds.bytes().of_pipeline(computation));
    EXPECT_LE(bounds.bytes().of_any_layout(), bounds.bytes().of_pipeline(computation));
    const std::optional<LayoutStep> step = steps.play(choice);
    if (!step) continue;
    if (step->is_exact)
      EXPECT_NEAR(step->seconds, plan.outcome.step_seconds, 1e-10 * plan.outcome.step_seconds);
    else
      EXPECT_LE(step->seconds, plan.outcome.step_seconds * (1 + 1e-12));
    EXPECT_LE(played, step->seconds);
    PlanChoice plain = choice;
    plain.recompute = nothing;
    EXPECT_LE(rounding_of_bounds * steps.play(plain)->seconds, step->seconds);
    PlanChoice alike = choice;
    alike.order = bounds.costs().orders().stand_in(choice.shape, choice.data, choice.order);
    EXPECT_EQ(steps.play(alike)->seconds, step->seconds) << name_of(choice.order) << " and " << name_of(alike.order);
    EXPECT_LE(step->live_bytes, plan.outcome.peak_memory_bytes());
    EXPECT_LE(bounds.bytes().of_layout(choice), step->live_bytes);
  }
}

constexpr const char *q_and_down = "--lora.target_modules=[\"q_proj\",\"down_proj\"]",
                     *rings_of_four = "--parallelism.context_parallel_degree=4";

const Case cases[] = {
    {"TiedOnSlowLinks", "gpt2-124m", "v100", 24, 48, 1024, 120},
    {"GroupedQueries", "llama3-8b", "h100", 16, 32, 4096, 120},
    {"QueryNorms", "qwen3-0.6b", "a100-40", 12, 24, 2048, 60},
    {"LayersOfFourKinds",
     "qwen3-0.6b",
     "a100-40",
     8,
     16,
     2048,
     30,
     {"--model.num_hidden_layers=6", "--model.sliding_window=256",
      "--model.mechanisms=layer_types=sliding_attention,sliding_attention,full_attention,sliding_attention,"
      "full_attention,full_attention no_rope_layers=1,1,0,0,0,1 norm_placement=both residual_multiplier=0.5"}},
    {"WholeProjectionNormsAndSoftCaps",
     "qwen3-0.6b",
     "a100-40",
     8,
     16,
     1024,
     30,
     {"--model.mechanisms=qk_norm_of_projection=true norm_placement=after attn_logit_softcapping=50 "
      "final_logit_softcapping=30 embedding_multiplier=32"}},
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
    {"GatheredFurtherAhead",
     "gpt2-124m",
     "v100",
     16,
     64,
     64,
     100,
     {"--parallelism.zero_level=3", "--parallelism.prefetch_depth=3"}},
    {"RanksWithCoresOfTheirOwn", "llama-10m", "", 2, 8, 128, 60},
    {"SnapshotsOnAHost", "llama-10m", "", 12, 24, 64, 60, {"--checkpoint.async_mode=async"}},
    {"SnapshotsOfSomeUnits",
     "gpt2-124m",
     "",
     4,
     8,
     64,
     30,
     {"--checkpoint.async_mode=async", "--checkpoint.snapshot_bytes=200000000"}},
    {"SnapshotsBesideDevices", "gpt2-124m", "v100", 16, 32, 1024, 30, {"--checkpoint.async_mode=async"}},
    {"TensorFloat32",
     "gpt2-124m",
     "a100-40",
     16,
     32,
     1024,
     60,
     {"--training.dtype=float32", "--training.float32_matmul_precision=high"}},
    {"FewMicrobatchesInALongPipeline",
     "llama3-8b",
     "a100-80",
     16,
     16,
     256,
     60,
     {"--parallelism.pipeline_parallel_degree=8", "--parallelism.zero_level=3", "--training.micro_batch_size=2",
      "--parallelism.reshard_after_forward=microbatch"}},
    {"GradientsThatAreReducedForEachMicrobatch",
     "llama3-8b",
     "v100",
     16,
     32,
     256,
     60,
     {"--parallelism.pipeline_parallel_degree=2", "--parallelism.zero_level=2"}},
    {"RingsInsideNodesAndAcross", "llama3-8b", "h100", 32, 32, 32768, 60, {"--model.max_position_embeddings=32768"}},
    {"RingsOnNodesOfFour", "llama3-8b", "a100-40", 24, 24, 1000, 40, {"--parallelism.context_parallel_degree=3"}},
    {"UnevenRings",
     "gpt2-124m",
     "v100",
     8,
     16,
     1000,
     40,
     {"--parallelism.context_parallel_degree=4", "--parallelism.context_parallel_load_balancer=none"}},
    {"HeadsInsideNodesAndRingsAcross",
     "llama3-8b",
     "h100",
     48,
     48,
     4096,
     60,
     {"--parallelism.context_parallel_degree=12", "--parallelism.context_parallel_method=ulysses_ring"}},
    {"HeadsThatShareKeys",
     "llama3-8b",
     "a100-40",
     32,
     32,
     4000,
     40,
     {"--parallelism.context_parallel_degree=16", "--parallelism.context_parallel_method=ulysses"}},
    {"GatheredKeysOfUnevenRanks",
     "gpt2-124m",
     "v100",
     8,
     16,
     1000,
     30,
     {"--parallelism.context_parallel_degree=4", "--parallelism.context_parallel_load_balancer=none",
      "--parallelism.context_parallel_method=all_gather"}},
    {"HeadsOfMegatronsSizes",
     "llama3-8b",
     "h100",
     32,
     32,
     4096,
     30,
     {"--parallelism.context_parallel_degree=8", "--parallelism.context_parallel_method=ulysses_ring",
      "--parallelism.hierarchical_context_parallel_sizes=[4,2]"}},
    {"Documents", "llama3-8b", "h100", 16, 32, 8192, 80, {rings_of_four, "--data.reset_attention_mask=true"}, "", 700},
    {"DocumentsOnNodesThatRingsDoNotFill",
     "gpt2-124m",
     "v100",
     24,
     48,
     1000,
     60,
     {"--parallelism.context_parallel_degree=3", "--data.reset_attention_mask=true", "--data.balance_batch=true"},
     "",
     150},
    {"RingsOfThreads", "llama-10m", "", 12, 24, 100, 30, {"--parallelism.context_parallel_degree=3"}},
    {"ExpertsInsideNodesAndAcross", "qwen3-30b-a3b", "h100", 32, 64, 1024, 60, {"--model.num_hidden_layers=6"}},
    {"ExpertsOnNodesOfFour", "mixtral-8x7b", "a100-40", 24, 48, 512, 40, {"--model.num_hidden_layers=4"}},
    {"ExpertsOfRings",
     "mixtral-8x7b",
     "h100",
     16,
     16,
     4096,
     30,
     {"--model.num_hidden_layers=4", "--parallelism.context_parallel_degree=2"}},
    {"ExpertsInSomeLayers",
     "qwen3-30b-a3b",
     "h100",
     16,
     32,
     1024,
     60,
     {"--model.num_hidden_layers=6", "--model.decoder_sparse_step=2"}},
    {"ExpertsInSomeLayersOfThreads",
     "qwen3-30b-a3b",
     "",
     4,
     8,
     64,
     30,
     {"--model.num_hidden_layers=4", "--model.hidden_size=64", "--model.mlp_only_layers=[0]",
      "--checkpoint.async_mode=async", "--checkpoint.snapshot_bytes=20000000"}},
    {"ExpertsOfThreads", "mixtral-30m", "", 8, 16, 64, 30},
    {"ExpertsOverPartsOfAxes",
     "qwen3-30b-a3b",
     "h100",
     24,
     48,
     1024,
     30,
     {"--model.num_hidden_layers=4", "--model.num_experts=96", "--parallelism.expert_parallel_degree=6",
      "--parallelism.tensor_parallel_degree=4"}},
    {"ExpertsInTwoHops",
     "qwen3-30b-a3b",
     "a100-40",
     32,
     64,
     1024,
     60,
     {"--model.num_hidden_layers=4", "--parallelism.expert_dispatch=hierarchical"}},
    {"ExpertsOfAllTokens",
     "qwen3-30b-a3b",
     "a100-40",
     32,
     64,
     1024,
     30,
     {"--model.num_hidden_layers=4", "--parallelism.expert_dispatch=all_gather"},
     "zipf:1.2"},
    {"UnevenExpertsInTwoHops",
     "qwen3-30b-a3b",
     "h100",
     32,
     64,
     1024,
     30,
     {"--model.num_hidden_layers=4", "--parallelism.expert_dispatch=hierarchical"},
     "zipf:1.2"},
    {"UnevenExperts",
     "mixtral-8x7b",
     "h100",
     32,
     64,
     1024,
     40,
     {"--model.num_hidden_layers=4", "--moe.dispatch_bound=1.05"},
     "zipf:1.2"},
    {"Large", "gpt3-175b", "a100-80", 128, 128, 2048, 8},
    // Adapters on frozen weights, which have no gradients, states or traffic of gradients.
    {"AdaptersOfATiedModel", "gpt2-124m", "v100", 24, 48, 1024, 60, {"--lora.rank=8"}},
    {"AdaptersOfGroupedQueries", "llama3-8b", "h100", 16, 32, 4096, 60, {"--lora.rank=8"}},
    {"AdaptersOfSomeLayers", "qwen3-0.6b", "a100-40", 12, 24, 2048, 40, {"--lora.rank=8", q_and_down}},
    {"AdaptersOfFusedLayers", "phi3-mini-4k", "a100-40", 16, 32, 1024, 40, {"--lora.rank=8"}},
    {"AdaptersOfWindows", "gemma2-2b", "h100", 16, 32, 1024, 30, {"--lora.rank=8"}},
    {"AdaptersNextToExperts",
     "qwen3-30b-a3b",
     "h100",
     16,
     32,
     1024,
     40,
     {"--lora.rank=8", "--model.num_hidden_layers=4", "--model.decoder_sparse_step=2"}},
    {"AdaptersOfSharedExpertsAndLatents",
     "deepseek-v2-lite",
     "h100",
     16,
     32,
     1024,
     30,
     {"--lora.rank=8", "--model.num_hidden_layers=3"}},
    {"AdaptersThatAreReducedForEachMicrobatch",
     "llama3-8b",
     "v100",
     16,
     32,
     256,
     60,
     {"--lora.rank=8", "--parallelism.pipeline_parallel_degree=2", "--parallelism.zero_level=2"}},
    {"AdaptersOnGatheredWeights",
     "gpt2-124m",
     "v100",
     16,
     64,
     64,
     100,
     {"--lora.rank=8", "--parallelism.zero_level=3", "--parallelism.reshard_after_forward=microbatch"}},
    {"AdaptersOnWeightsThatStayGathered",
     "qwen3-0.6b",
     "v100",
     16,
     64,
     64,
     60,
     {"--lora.rank=8", "--parallelism.zero_level=3", "--parallelism.reshard_after_forward=never"}},
    {"AdaptersOfRings", "llama3-8b", "h100", 32, 32, 4096, 30, {"--lora.rank=8", rings_of_four}},
    {"AdaptersOfConvertedGradients",
     "llama3-8b",
     "a100-80",
     16,
     32,
     1024,
     30,
     {"--lora.rank=8", "--training.reduce_dtype=bfloat16"}},
    {"AdaptersOfThreads", "llama-10m", "", 12, 24, 64, 60, {"--lora.rank=8"}},
    {"SnapshotsOfAdapters",
     "gpt2-124m",
     "",
     4,
     8,
     64,
     30,
     {"--lora.rank=8", "--checkpoint.async_mode=async", "--checkpoint.snapshot_bytes=2000000"}},
};

// With each machine's rates and those that are borrowed for it. Programs take what blueprints take (above), in a tenth
// of the time: so there are more of them, of each level of ZeRO.
TEST(BoundsOfProfiles, AreBelowTheBlueprintsNumbers) {
  std::mt19937 random(1);
  for (const ShippedMachine& shipped : shipped_machines())
    for (const char* profile : {"echelon", "ideal", "bloom"}) {
      const std::string machine(shipped.name);
      SCOPED_TRACE(machine + " with " + profile);
      const PlanRequest request = read_plan_request({.model = "gpt2-124m",
                                                     .machine = machine,
                                                     .gpus = 16,
                                                     .global_batch_size = 64,
                                                     .seq_len = 256,
                                                     .profile = profile});
      const PlanSpace space(request);
      PlanBounds bounds(space, request);
      for (int i = 0; i < 4; ++i) {
        const PlanChoice choice = any_choice(space, random);
        EXPECT_LE(bounds.seconds(choice), evaluate(request, choice).outcome.step_seconds);
      }
      LayoutSteps steps(space, request, bounds.costs());
      for (int i = 0; i < 40; ++i) {
        const PlanChoice choice = any_choice(space, random);
        const std::optional<LayoutStep> step = steps.play(choice);
        EXPECT_TRUE(!step || bounds.seconds(choice) <= step->seconds);
      }
    }
}

/// The bounds of any layout, its programs and its blueprint, on a machine whose hosts are so slow.
void compare_with_slow_hosts(double launch_seconds, double collective_seconds,
                             const std::vector<std::string>& settings) {
  PlanRequest request = request_of({"", "llama3-8b", "h100", 16, 32, 1024, 0, settings});
  DeviceSpec& device = request.machine.nodes.front().device;
  device.launch_seconds = launch_seconds;
  device.collective_launch_seconds = collective_seconds;
  PlanRequest free = request;
  DeviceSpec& without = free.machine.nodes.front().device;
  without.launch_seconds = without.collective_launch_seconds = 0;
  const PlanSpace space(request);
  PlanBounds bounds(space, request);
  LayoutSteps steps(space, request, bounds.costs());
  std::mt19937 random(3);
  for (int i = 0; i < 25; ++i) {
    const PlanChoice choice = any_choice(space, random);
    const Plan plan = evaluate(request, choice);
    SCOPED_TRACE(to_toml(plan.config).substr(to_toml(plan.config).find("[training]")));
    const std::optional<LayoutStep> step = steps.play(choice);
    ASSERT_TRUE(step && step->is_exact);
    EXPECT_NEAR(step->seconds, plan.outcome.step_seconds, 1e-10 * plan.outcome.step_seconds);
    EXPECT_LE(bounds.seconds(choice), step->seconds);
    EXPECT_GT(plan.outcome.parts.host_seconds, 0);
    EXPECT_GT(plan.outcome.step_seconds, evaluate(free, choice).outcome.step_seconds + launch_seconds / 2);
  }
}

TEST(BoundsOfHosts, AreBelowAndProgramsAreExact) {
  for (const auto& [launch, collective] : {std::pair(1e-2, 1e-3), std::pair(1e-4, 0.1)})
    compare_with_slow_hosts(launch, collective, {});
}

TEST(BoundsOfHosts, KnowsGraphs) {
  compare_with_slow_hosts(
      0.1, 0.1, {"--training.cuda_graphs=true", "--training.device=cuda", "--parallelism.pipeline_parallel_degree=1"});
}

/// The request with snapshots of so many bytes at most.
PlanRequest with_snapshots(PlanRequest request, std::int64_t most_bytes) {
  request.base.checkpoint.async_mode = AsyncMode::async;
  request.base.checkpoint.snapshot_bytes = most_bytes;
  return request;
}

// What checkpoints add to the bounds is what they add to blueprints: to the byte where all is copied, else not more.
TEST(BoundsOfSnapshots, AreTheBlueprintsBytes) {
  struct Copied {
    Case at;
    std::int64_t most_bytes;
    bool is_exact, is_in_arena = true;
  };
  const Copied some[] = {
      {{"", "llama-10m", "", 12, 24, 64, 40}, -1, true},
      {{"", "llama-10m", "", 12, 24, 64, 20}, 10'000'000, false},
      {{"", "gpt2-124m", "", 4, 8, 64, 20}, -1, true},
      {{"", "llama-10m", "v100", 16, 32, 64, 10, {"--training.device=cpu"}}, -1, true},
      {{"", "llama-10m", "v100", 16, 32, 64, 10}, -1, true, false},
  };
  for (const auto& [at, most_bytes, is_exact, is_in_arena] : some) {
    const PlanRequest request = with_snapshots(request_of(at), most_bytes);
    const PlanSpace space(request);
    PlanBounds bounds(space, request);
    std::mt19937 random(7);
    std::int64_t all = 0;
    for (int i = 0; i < at.draws; ++i) {
      const PlanChoice choice = any_choice(space, random);
      const Plan plan = evaluate(request, choice);
      for (std::size_t rank = 0; rank < plan.outcome.memory.size(); ++rank) {
        SCOPED_TRACE(fmt::format("{} on '{}' {}: {} of {}", at.model, at.machine, i, rank, plan.outcome.memory.size()));
        const std::int64_t of_blueprint = plan.outcome.memory[rank].category_bytes.at(MemoryCategory::snapshot),
                           bound = bounds.bytes().of_snapshot(choice, static_cast<int>(rank));
        EXPECT_LE(bound, of_blueprint);
        EXPECT_TRUE(!is_exact || bound == of_blueprint) << bound << " and " << of_blueprint;
        all += bound;
      }
    }
    EXPECT_EQ(all > 0, is_in_arena) << "a GPU's are in the memory of its host";
  }
}

// Of programs, whose bytes are those of blueprints but for gaps, which snapshots do not change.
TEST(BoundsOfSnapshots, OfProgramsAreTheBlueprintsBytes) {
  for (const std::int64_t most_bytes : {std::int64_t{-1}, std::int64_t{600'000'000}}) {
    const PlanRequest without = request_of(
        {"", "gpt2-124m", "v100", 8, 16, 64, 0, {"--training.device=cpu", "--parallelism.pipeline_parallel_degree=1"}});
    const PlanRequest with = with_snapshots(without, most_bytes);
    const PlanSpace space(without), space_with(with);
    PlanBounds bounds(space, without), bounds_with(space_with, with);
    LayoutSteps steps(space, without, bounds.costs()), steps_with(space_with, with, bounds_with.costs());
    std::mt19937 random(7);
    for (int i = 0; i < 8; ++i) {
      const PlanChoice choice = any_choice(space, random);
      SCOPED_TRACE(fmt::format("{} {}", most_bytes, i));
      const Plan plan = evaluate(with, choice);
      const std::int64_t of_blueprint =
          plan.outcome.peak_memory_bytes() - evaluate(without, choice).outcome.peak_memory_bytes();
      EXPECT_EQ(steps_with.play(choice)->live_bytes - steps.play(choice)->live_bytes, of_blueprint);
      EXPECT_GT(of_blueprint, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Plan, Bounds, ::testing::ValuesIn(cases),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace echelon
