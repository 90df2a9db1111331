// What an exchange of rows between the ranks of experts costs: bytes that are sent, and memory.
#include "base/error.h"
#include "ops/cpu/cpu_ops.h"
#include "parity/forced_router.h"
#include "parity/layout.h"
#include "spec/groups.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <map>

namespace echelon::testing {
namespace {

constexpr std::int64_t num_experts = 8, seq_len = 12;

// Claim (plans): An exchange of rows sends (P - 1) / P of R rows there and back with P ranks and even
//   loads, forward as well as backward.
// Bound: bytes equal, in the plan and as counted.
// Tests: ExpertTraffic
TEST(ExpertTraffic, IsTheClosedForm) {
  for (const int ep : {2, 4, 8}) {
    RunConfig config = config_of({.shard = 8, .layers = 2, .experts = num_experts, .ep = ep, .bound = 1});
    config.training.steps = config.lr_scheduler.warmup_steps = 2;
    const std::int64_t P = ep, rows = config.training.micro_batch_size * seq_len * 2, moved = rows * (P - 1) / P,
                       D = config.model.hidden_size * 8, weight = 8, offsets = (P - 1) * (num_experts + 1) * 4;
    const auto even = [](std::int64_t n, std::int64_t j) {
      return static_cast<std::int32_t>((2 * n + j) % num_experts);
    };
    const auto at_end = [&](const RankView& rank) {
      for (const ProgramKind kind : {ProgramKind::training, ProgramKind::evaluation}) {
        std::int64_t planned = 0, forwards = 0;  // of a layer and microbatch
        for (const Action& action : rank.run.blueprint().program(kind)) {
          forwards += action.kind == ActionKind::forward ? 2 : 0;
          for (const CommRecord& comm : rank.run.blueprint().trace(kind).of(action).communications())
            if (comm.group == expert_group(ep)) planned += comm.sent_bytes;
        }
        EXPECT_GT(forwards, 0);
        const std::int64_t backwards = kind == ProgramKind::training ? forwards : 0;
        // x there with weights and y back; dy there, and dx back with the gradients of weights
        EXPECT_EQ(planned, forwards * (offsets + moved * (2 * D + weight)) + backwards * moved * (2 * D + weight));
        const ExpertTraffic& traffic = rank.run.step().expert_traffic(kind);
        EXPECT_EQ(traffic.sent_bytes, traffic.planned_sent_bytes);
        EXPECT_GT(traffic.sent_bytes, 0);
      }
    };
    (void)run_training(config, {.interpose = forced(even, seq_len), .at_end = at_end});
  }
}

// Where ETP ranks have features of the same experts, (EP - 1) / EP of R rows go across and (ETP - 1) R rows inside, and
// as many come back.
TEST(ExpertTraffic, OfFeaturesIsTheClosedForm) {
  for (const auto& [ep, etp] : {std::pair{2, 2}, {4, 2}, {2, 4}, {1, 8}}) {
    RunConfig config = config_of({.shard = 8, .layers = 2, .experts = num_experts, .ep = ep, .etp = etp, .bound = 1});
    config.training.steps = config.lr_scheduler.warmup_steps = 2;
    SCOPED_TRACE(fmt::format("ep {}, etp {}", ep, etp));
    const std::int64_t rows = config.training.micro_batch_size * seq_len * 2, D = config.model.hidden_size * 8,
                       weight = 8, offsets = (num_experts + 1) * 4;
    const auto even = [](std::int64_t n, std::int64_t j) {
      return static_cast<std::int32_t>((2 * n + j) % num_experts);
    };
    const auto at_end = [&, ep = std::int64_t{ep}, etp = std::int64_t{etp}](const RankView& rank) {
      const Group across = expert_across_group(static_cast<int>(ep * etp), static_cast<int>(etp)),
                  inside = expert_inner_group(static_cast<int>(etp));
      for (const ProgramKind kind : {ProgramKind::training, ProgramKind::evaluation}) {
        std::map<Group, std::int64_t> planned;
        std::int64_t forwards = 0;  // of a layer and microbatch
        for (const Action& action : rank.run.blueprint().program(kind)) {
          forwards += action.kind == ActionKind::forward ? 2 : 0;
          for (const CommRecord& comm : rank.run.blueprint().trace(kind).of(action).communications())
            planned[comm.group] += comm.sent_bytes;
        }
        EXPECT_GT(forwards, 0);
        const std::int64_t backwards = kind == ProgramKind::training ? forwards : 0, of_row = 2 * D + weight;
        const auto expected = [&](std::int64_t moved, std::int64_t of_offsets) {
          return forwards * (of_offsets + moved * of_row) + backwards * moved * of_row;
        };
        EXPECT_EQ(planned[across], expected(rows * (ep - 1) / ep, (ep - 1) * offsets));
        EXPECT_EQ(planned[inside], expected(rows * (etp - 1), (etp - 1) * ep * offsets));
        const ExpertTraffic& traffic = rank.run.step().expert_traffic(kind);
        EXPECT_EQ(traffic.sent_bytes, traffic.planned_sent_bytes);
        EXPECT_EQ(traffic.across_bytes, traffic.planned_across_bytes);
        EXPECT_EQ(traffic.flops, traffic.planned_flops);
        EXPECT_GT(traffic.sent_bytes, 0);
      }
    };
    (void)run_training(config, {.interpose = forced(even, seq_len), .at_end = at_end});
  }
}

std::string sentence_about(const Layout& layout) {
  try {
    validate(config_of(layout));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ExpertRanks, AreRefusedWithTheClosestDegree) {
  EXPECT_EQ(sentence_about({.shard = 8, .experts = 8, .ep = 7}),
            "parallelism.expert_parallel_degree = 7 does not divide model.num_experts = 8 (use 8)");
  EXPECT_EQ(sentence_about({.shard = 6, .experts = 12, .ep = 5}),
            "parallelism.expert_parallel_degree = 5 does not divide model.num_experts = 12 (use 6)");
  EXPECT_EQ(sentence_about({.shard = 4, .tp = 2, .experts = 8, .ep = 4, .etp = 2}),
            "parallelism.expert_parallel_degree = 4 next to tensor_parallel_degree = 2 would route each token 2 times: "
            "it needs parallelism.sequence_parallel = true (use expert_parallel_degree = 1)");
  EXPECT_EQ(sentence_about({.shard = 4, .experts = 8, .ep = 4, .bound = 0}),
            "moe.dispatch_bound = 0 is below 0.001 (use 0.001)");
  EXPECT_EQ(sentence_about({.shard = 4, .experts = 8, .ep = 4, .capacity = 0}),
            "moe.capacity_factor = 0 is below 0.001 (use 0.001)");
  // 6 divides the experts, but there are 4 ranks.
  EXPECT_EQ(sentence_about({.shard = 4, .experts = 6, .ep = 5}),
            "parallelism.expert_parallel_degree = 5 does not divide model.num_experts = 6 (use 2)");
  EXPECT_EQ(sentence_about({.shard = 3, .tp = 2, .sequence_parallel = true, .experts = 12, .ep = 4}),
            "parallelism.expert_parallel_degree = 4 does not divide the data_parallel_shard_degree = 3 x "
            "context_parallel_degree = 1 x tensor_parallel_degree = 2 ranks (use 3)");
}

TEST(ExpertFeatures, AreRefusedInASentence) {
  EXPECT_EQ(sentence_about({.shard = 4, .experts = 8, .ep = 2, .etp = 2}), "");
  EXPECT_EQ(sentence_about({.shard = 4, .experts = 8, .etp = 4}), "");
  EXPECT_EQ(sentence_about({.shard = 4, .experts = 8, .ep = 2, .etp = 3}),
            "parallelism.expert_tensor_parallel_degree = 3 with expert_parallel_degree = 2 does not divide the "
            "data_parallel_shard_degree = 4 x context_parallel_degree = 1 x tensor_parallel_degree = 1 ranks (use 2)");
  EXPECT_EQ(sentence_about({.shard = 16, .experts = 8, .etp = 16}),
            "parallelism.expert_tensor_parallel_degree = 16 is more than the features of an expert, "
            "model.moe_intermediate_size = 13 (use 8)");
  EXPECT_EQ(sentence_about({.shard = 2, .tp = 2, .experts = 8, .etp = 4}),
            "parallelism.expert_tensor_parallel_degree = 4 has each tensor-parallel rank route tokens of its own, but "
            "parallelism.sequence_parallel = false (use 2)");
  EXPECT_EQ(sentence_about({.shard = 8, .experts = 8, .ep = 4, .etp = 2, .ranks_per_node = 2}),
            "parallelism.expert_dispatch = 'hierarchical' is not supported with expert_tensor_parallel_degree = 2 (use "
            "'direct')");
}

/// What the matmuls of experts computed on one rank, and what its trace says.
void expect_kept_rows_as_planned(const RankView& rank, const CpuOps& cpu, const RunConfig& config) {
  std::int64_t planned = 0, planned_for_all = 0;
  for (const ProgramKind kind : {ProgramKind::training, ProgramKind::evaluation}) {
    const std::int64_t times = kind == ProgramKind::training ? config.training.steps : 1;
    for (const Action& action : rank.run.blueprint().program(kind))
      for (const OpRecord& op : rank.run.blueprint().trace(kind).of(action).operations())
        if (op.kind == OpKind::grouped_matmul || op.kind == OpKind::grouped_matmul_backward_weight)
          planned += times * op.flops;
    const std::int64_t rows = config.training.global_batch_size / 4 * config.training.seq_len * 2,
                       passes = kind == ProgramKind::training ? 3 : 1;
    planned_for_all += times * passes * rows * config.model.num_hidden_layers * 3 * 2 * config.model.hidden_size *
                       config.model.mixture.moe_intermediate_size;
    const ExpertTraffic& traffic = rank.run.step().expert_traffic(kind);
    EXPECT_EQ(traffic.flops, traffic.planned_flops);
    EXPECT_EQ(traffic.sent_bytes, traffic.planned_sent_bytes);
  }
  EXPECT_EQ(cpu.expert_flops(), planned);
  EXPECT_LT(planned, planned_for_all);
}

// With a capacity a plan has the rows that experts keep: of each expert two of three in a sequence, in training alone.
TEST(ExpertCapacity, PlansHaveTheRowsThatAreKept) {
  for (const int ep : {1, 2, 4}) {
    SCOPED_TRACE(ep);
    RunConfig config = config_of({.shard = 4, .experts = num_experts, .ep = ep, .capacity = 0.5});
    config.training.steps = config.lr_scheduler.warmup_steps = 2;
    const auto even = [](std::int64_t n, std::int64_t j) {
      return static_cast<std::int32_t>((2 * n + j) % num_experts);
    };
    std::array<const CpuOps*, 4> backends{};
    const Interpose interpose = [&](Ops& ops, Mesh& mesh) {
      backends.at(static_cast<std::size_t>(mesh.rank())) = dynamic_cast<const CpuOps*>(&ops);
      return forced(even, seq_len)(ops, mesh);
    };
    const auto at_end = [&](const RankView& rank) {
      const CpuOps* const cpu = backends.at(static_cast<std::size_t>(rank.mesh.rank()));
      ASSERT_NE(cpu, nullptr);
      expect_kept_rows_as_planned(rank, *cpu, config);
    };
    (void)run_training(config, {.interpose = interpose, .at_end = at_end});
  }
}

// Of dp 3 x tp 2 three ranks have the experts of a layer, and their tokens are of two sequences: with all rows at two
// experts, each of which keeps half of a sequence's tokens, these take one round, too.
TEST(ExpertCapacity, TakesOneRoundOfGroupsThatStartWithinASequence) {
  RunConfig config =
      config_of({.shard = 3, .tp = 2, .sequence_parallel = true, .experts = 6, .ep = 3, .capacity = 1.5});
  config.training.steps = config.lr_scheduler.warmup_steps = 2;
  for (const std::int32_t first : {0, 2, 4}) {
    const auto two = [=](std::int64_t, std::int64_t j) { return static_cast<std::int32_t>(first + j); };
    const auto at_end = [](const RankView& rank) {
      const ExpertTraffic& traffic = rank.run.step().expert_traffic(ProgramKind::training);
      EXPECT_GT(traffic.num_exchanges, 0);
      EXPECT_EQ(traffic.num_rounds, traffic.num_exchanges) << "rank " << rank.mesh.rank();
    };
    (void)run_training(config, {.interpose = forced(two, seq_len), .at_end = at_end});
  }
}

// Memory is a function of the bound alone, and grows with it up to all rows that could come.
TEST(DispatchBound, DecidesMemory) {
  std::int64_t before = 0;
  for (const double bound : {0.5, 1.0, 2.0, 4.0}) {
    const Blueprint blueprint(config_of({.shard = 4, .experts = num_experts, .ep = 4, .bound = bound}));
    EXPECT_GT(blueprint.rank(0).arena_bytes(), before) << bound;
    before = blueprint.rank(0).arena_bytes();
  }
  const Blueprint blueprint(config_of({.shard = 4, .experts = num_experts, .ep = 4, .bound = 100}));
  EXPECT_EQ(blueprint.rank(0).arena_bytes(), before);
}

}  // namespace
}  // namespace echelon::testing
