// Experts on several nodes: a token crosses to a node once, and memory knows no loads.
#include "parity/forced_router.h"
#include "parity/layout.h"
#include "parity/locks.h"
#include "spec/groups.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace echelon::testing {
namespace {

constexpr std::int64_t all_experts = 8, sequence_length = 12;

RunConfig config_of_nodes(int ep, int ranks_per_node, double bound, int etp = 0) {
  RunConfig config = config_of({.shard = 8,
                                .layers = 2,
                                .experts = all_experts,
                                .ep = ep,
                                .etp = etp,
                                .bound = bound,
                                .ranks_per_node = ranks_per_node});
  config.training.steps = config.lr_scheduler.warmup_steps = 2;
  return config;
}

struct Loads {
  const char* name;
  std::int64_t experts_per_token;
  Choice choice;
};

const std::vector<Loads>& all_loads() {
  static const std::vector<Loads> all = {
      {"even", 2, [](std::int64_t n, std::int64_t j) { return static_cast<std::int32_t>((2 * n + j) % 8); }},
      {"apart", 2, [](std::int64_t n, std::int64_t j) { return static_cast<std::int32_t>((n + 4 * j) % 8); }},
      {"one_expert", 1, [](std::int64_t, std::int64_t) { return 5; }},
      {"one_rank", 2, [](std::int64_t, std::int64_t j) { return static_cast<std::int32_t>(2 + j); }},
      {"one_node", 3, [](std::int64_t, std::int64_t j) { return static_cast<std::int32_t>(4 + j); }},
      {"none_at_one", 2, [](std::int64_t n, std::int64_t j) { return static_cast<std::int32_t>((2 * n + j) % 7); }},
      {"all", 8, [](std::int64_t, std::int64_t j) { return static_cast<std::int32_t>(j); }}};
  return all;
}

/// Rows that a rank of `node` sends to other nodes, of one sequence.
std::int64_t rows_across(const Loads& loads, int num_nodes, int node) {
  std::int64_t rows = 0;
  for (std::int64_t n = 0; n < sequence_length; ++n) {
    std::set<std::int64_t> nodes;
    for (std::int64_t j = 0; j < loads.experts_per_token; ++j)
      nodes.insert(loads.choice(n, j) / (all_experts / num_nodes));
    nodes.erase(node);
    rows += std::ssize(nodes);
  }
  return rows;
}

// Claim (plans): With hierarchical dispatch a token crosses to a node once, and one row comes back.
// Bound: bytes across nodes equal, as counted in the transport, whatever the loads.
// Tests: HierarchicalDispatch
TEST(HierarchicalDispatch, SendsATokenToANodeOnce) {
  for (const Loads& loads : all_loads()) {
    std::unique_ptr<Trajectory> expected;
    for (const auto& [ep, ranks_per_node, bound] :
         {std::tuple{8, 4, 1.0}, {8, 4, 0.3}, {8, 2, 1.2}, {4, 2, 0.4}, {8, 4, 100.0}}) {
      RunConfig config = config_of_nodes(ep, ranks_per_node, bound);
      config.model.mixture.num_experts_per_tok = loads.experts_per_token;
      if (!expected) expected = run_training(one_rank(config), {.interpose = forced(loads.choice, sequence_length)});
      SCOPED_TRACE(fmt::format("{} over {} ranks, {} on a node, bound {}", loads.name, ep, ranks_per_node, bound));
      const Group across = expert_across_group(ep, ranks_per_node);
      const std::int64_t tokens = config.training.micro_batch_size * sequence_length, k = loads.experts_per_token,
                         row_bytes = config.model.hidden_size * 8, weight_bytes = k * 8;
      const auto at_end = [&, ep = ep, on_node = ranks_per_node](const RankView& rank) {
        expect_locks_hold(rank, {.training = config.training.steps, .evaluation = 1});
        const int M = ep / on_node, place = rank.mesh.shape().place_in(expert_group(ep), rank.mesh.rank()).index,
                  node = place / on_node;
        std::int64_t forwards = 0, backwards = 0;
        for (const ProgramKind kind : {ProgramKind::training, ProgramKind::evaluation}) {
          const std::int64_t steps = kind == ProgramKind::training ? config.training.steps : 1;
          for (const Action& action : rank.run.blueprint().program(kind)) {
            forwards += action.kind == ActionKind::forward ? 2 * steps : 0;
            backwards += action.kind == ActionKind::forward && kind == ProgramKind::training ? 2 * steps : 0;
          }
        }
        // Ranks at one place of nodes send the same, so what comes from other nodes goes back to them.
        std::int64_t come = 0;
        for (int other = 0; other < M; ++other) {
          if (other == node) continue;
          std::int64_t there = 0;
          for (std::int64_t n = 0; n < sequence_length; ++n) {
            bool goes = false;
            for (std::int64_t j = 0; j < k; ++j) goes |= loads.choice(n, j) / (all_experts / M) == node;
            there += goes ? 1 : 0;
          }
          come += there;
        }
        const std::int64_t B = config.training.micro_batch_size, go = B * rows_across(loads, M, node);
        come *= B;
        const std::int64_t choices = (M - 1) * tokens * k * 4;
        const std::int64_t rounds = rank.run.step().expert_traffic(ProgramKind::training).num_rounds;
        const bool is_one_round = rounds == rank.run.step().expert_traffic(ProgramKind::training).num_exchanges;
        // x there with weights and y back; dy there, and dx back with the gradients of weights. Rounds after the first
        // are sent again.
        const std::int64_t least = forwards * (choices + go * (row_bytes + weight_bytes) + come * row_bytes) +
                                   backwards * (go * row_bytes + come * (row_bytes + weight_bytes));
        const std::int64_t sent = rank.mesh.sent_bytes().at(across);
        EXPECT_GE(sent, least);
        EXPECT_LE(sent, least + (is_one_round ? 0 : backwards * go * (row_bytes + weight_bytes)));
        EXPECT_EQ(rank.mesh.sent_bytes().count(expert_group(ep)), 0U);
      };
      const auto actual = run_training(config, {.interpose = forced(loads.choice, sequence_length), .at_end = at_end});
      expect_equal(*actual, *expected, 1e-11, 1e-9, config.optimizer.lr);
    }
  }
}

TEST(HierarchicalDispatch, NeedsSeveralNodesOfSeveralRanks) {
  const auto sentence_about = [](const RunConfig& config) -> std::string {
    try {
      validate(config);
      (void)ep_on_node(config);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  RunConfig config = config_of_nodes(8, 4, 1);
  EXPECT_EQ(sentence_about(config), "");
  config.parallelism.ranks_per_node = 3;
  EXPECT_EQ(sentence_about(config),
            "parallelism.ranks_per_node = 3 does not give every node equally many neighbours of the 8 ranks with the "
            "experts of a layer, which parallelism.expert_dispatch = 'hierarchical' has to divide into several each "
            "(use 2)");
  config.parallelism.ranks_per_node = 8;
  EXPECT_EQ(sentence_about(config),
            "parallelism.ranks_per_node = 8 gives one node all of the 8 ranks with the experts of a layer, which "
            "parallelism.expert_dispatch = 'hierarchical' has to divide into several each (use 4)");
  config.parallelism.ranks_per_node = 0;
  EXPECT_EQ(sentence_about(config),
            "parallelism.expert_dispatch = 'hierarchical' needs parallelism.ranks_per_node, which is 0: which ranks "
            "share a node? (use 'direct')");
  config.parallelism.expert_parallel_degree = 1;
  EXPECT_EQ(sentence_about(config),
            "parallelism.expert_dispatch = 'hierarchical' sends rows to other nodes, and "
            "parallelism.expert_parallel_degree = 1 sends none (use 'auto')");
  config = config_of({.shard = 2, .ranks_per_node = 2});
  EXPECT_EQ(
      sentence_about(config),
      "parallelism.expert_dispatch = 'hierarchical' is for mixtures of experts, and the model has no experts (use "
      "'auto')");
}

// Claim (plans): With all_gather each token goes to P - 1 ranks, which return one row of it.
// Bound: bytes equal, as counted, in one round; more send some again.
// Tests: GatheredTokens
TEST(GatheredTokens, GoToEveryRankOnce) {
  for (const Loads& loads : all_loads()) {
    std::unique_ptr<Trajectory> expected;
    for (const auto& [ep, etp, bound] :
         {std::tuple{2, 1, 1.0}, {4, 1, 0.4}, {8, 1, 1.2}, {8, 1, 0.3}, {8, 1, 100.0}, {4, 2, 1.2}, {2, 2, 0.4}}) {
      RunConfig config = config_of_nodes(ep, 1, bound, etp);
      config.model.mixture.num_experts_per_tok = loads.experts_per_token;
      if (!expected) expected = run_training(one_rank(config), {.interpose = forced(loads.choice, sequence_length)});
      SCOPED_TRACE(fmt::format("{} over {} x {} ranks, bound {}", loads.name, ep, etp, bound));
      const std::int64_t N = config.training.micro_batch_size * sequence_length, k = loads.experts_per_token,
                         others = (ep * etp - 1) * N, D = config.model.hidden_size * 8, weights = k * 8,
                         choices = k * 4, layers = config.model.num_hidden_layers;
      const auto at_end = [&, ep = ep, etp = etp, bound = bound](const RankView& rank) {
        expect_locks_hold(rank, {.training = config.training.steps, .evaluation = 1});
        std::int64_t forwards = 0, backwards = 0;
        for (const ProgramKind kind : {ProgramKind::training, ProgramKind::evaluation}) {
          const std::int64_t steps = kind == ProgramKind::training ? config.training.steps : 1;
          for (const Action& action : rank.run.blueprint().program(kind)) {
            const std::int64_t passes = action.kind == ActionKind::forward ? layers * steps : 0;
            forwards += passes;
            backwards += kind == ProgramKind::training ? passes : 0;
          }
        }
        const ExpertTraffic traffic = rank.run.step().expert_traffic(ProgramKind::training);
        const bool is_one_round = traffic.num_rounds == traffic.num_exchanges;
        // x there with weights and y back; dy there, and dx back with the gradients of weights. Rounds after the first
        // are sent again.
        const std::int64_t least = others * (forwards * (choices + 2 * D + weights) + backwards * (2 * D + weights)),
                           sent = rank.mesh.sent_bytes().at(expert_group(ep * etp));
        EXPECT_GE(sent, least);
        EXPECT_LT(sent, least + (is_one_round ? 1 : backwards * others * (D + weights)));
        EXPECT_TRUE(bound <= ep || is_one_round);
        EXPECT_TRUE(bound >= 1 || !is_one_round);
      };
      const auto actual = run_training(config, {.interpose = forced(loads.choice, sequence_length), .at_end = at_end});
      expect_equal(*actual, *expected, 1e-11, 1e-9, config.optimizer.lr);
    }
  }
}

TEST(GatheredTokens, AreRefusedInASentence) {
  const auto sentence_about = [](const Layout& layout) -> std::string {
    try {
      validate(config_of(layout));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(sentence_about({.shard = 4, .experts = 8, .ep = 4, .ranks_per_node = 1}), "");
  EXPECT_EQ(sentence_about({.shard = 4, .experts = 8, .ranks_per_node = 1}),
            "parallelism.expert_dispatch = 'all_gather' sends tokens to other ranks, and "
            "parallelism.expert_parallel_degree = 1 sends none (use 'auto')");
  EXPECT_EQ(sentence_about({.shard = 4, .experts = 8, .ep = 2, .etp = 2, .ranks_per_node = 1}), "");
}

// Where nodes are not known, or an expert group is on one of them, rows go directly.
TEST(HierarchicalDispatch, IsWhatNodesAllow) {
  RunConfig config = config_of_nodes(4, 2, 1);
  EXPECT_EQ(ep_on_node(config), 2);
  config.parallelism.expert_dispatch = ExpertDispatch::automatic;
  for (const auto& [ranks, on_node] : {std::pair{0, 0}, {1, 0}, {2, 2}, {3, 0}, {4, 0}, {8, 0}}) {
    config.parallelism.ranks_per_node = ranks;
    EXPECT_EQ(ep_on_node(config), on_node) << ranks;
  }
  config.parallelism.ranks_per_node = 2;
  config.parallelism.expert_dispatch = ExpertDispatch::direct;
  EXPECT_EQ(ep_on_node(config), 0);
}

// Copies are summed at their nodes in one order, whoever comes first.
TEST(HierarchicalDispatch, TwoRunsHaveTheSameBits) {
  for (const auto& [ranks_per_node, bound] : {std::pair{4, 0.3}, {4, 1.2}, {1, 0.3}, {1, 1.2}}) {
    const RunConfig config = config_of_nodes(8, ranks_per_node, bound);
    const auto first = run_training(config), second = run_training(config);
    EXPECT_EQ(first->losses, second->losses);
    EXPECT_EQ(first->grad_norms, second->grad_norms);
    EXPECT_EQ(first->first_gradients.tensors(), second->first_gradients.tensors());
    EXPECT_EQ(first->values.tensors(), second->values.tensors());
  }
}

/// What a block with experts keeps for backward, and works with.
std::int64_t block_bytes(RunConfig config, int ranks_per_node, double bound) {
  config.moe.dispatch_bound = bound;
  config.parallelism.ranks_per_node = ranks_per_node;
  config.parallelism.expert_dispatch = ranks_per_node == 1  ? ExpertDispatch::all_gather
                                       : ranks_per_node > 0 ? ExpertDispatch::hierarchical
                                                            : ExpertDispatch::direct;
  const Blueprint blueprint(config);
  const RankBlueprint rank = blueprint.rank(0);
  const MemoryPlan& plan = rank.memory(ProgramKind::training);
  return plan.peak_bytes(MemoryCategory::activations) + plan.peak_bytes(MemoryCategory::workspace);
}

/// A block of N D of 16 MiB.
RunConfig block_of_experts(int ep, int num_experts) {
  RunConfig config =
      config_of({.shard = ep, .microbatches = 1, .layers = 1, .seq_len = 2048, .experts = num_experts, .ep = ep});
  config.training.dtype = DType::float32;
  config.training.grad_dtype = DType::float32;
  config.training.micro_batch_size = 1;
  config.training.global_batch_size = ep;
  config.model.max_position_embeddings = 2048;
  config.model.hidden_size = 2048;
  config.model.num_attention_heads = config.model.num_key_value_heads = 16;
  config.model.head_dim = 128;
  config.model.mixture.moe_intermediate_size = config.model.mixture.shared_expert_intermediate_size = 1024;
  config.model.mixture.num_experts_per_tok = 6;
  return config;
}

RunConfig block_of(const char* preset_name, int ep) {
  RunConfig config = block_of_experts(ep, ep);
  config.model = preset(preset_name);
  config.model.num_hidden_layers = 1;
  config.training.seq_len = 4096;
  return config;
}

// Of known even loads a round takes all rows and no more, and none of them needs two hops.
TEST(DispatchMemory, IsCloseToThatOfKnownEvenLoads) {
  const std::tuple<const char*, RunConfig, int, double, double> blocks[] = {
      {"two nodes", block_of_experts(8, 24), 4, 1.25, 1.25},
      {"four nodes", block_of_experts(16, 48), 4, 1.25, 1.25},
      {"eight nodes", block_of_experts(32, 96), 4, 1.25, 1.25},
      {"qwen3-30b-a3b over 64", block_of("qwen3-30b-a3b", 64), 8, 1.25, 1.25},
      {"qwen3-30b-a3b over 128", block_of("qwen3-30b-a3b", 128), 8, 1.25, 1.25}};
  for (const auto& [name, config, ranks_per_node, most_directly, most_in_two_hops] : blocks) {
    const double bound = MoeConfig().dispatch_bound;
    const auto known = static_cast<double>(block_bytes(config, 0, 1)),
               directly = static_cast<double>(block_bytes(config, 0, bound)) / known,
               in_two_hops = static_cast<double>(block_bytes(config, ranks_per_node, bound)) / known;
    fmt::print("{}: {:.3f}x directly, {:.3f}x in two hops\n", name, directly, in_two_hops);
    EXPECT_GT(directly, 1) << name;
    EXPECT_LE(directly, most_directly) << name;
    EXPECT_GT(in_two_hops, 0.5) << name;
    EXPECT_LE(in_two_hops, most_in_two_hops) << name;
  }
}

// A rank sends N rows instead of k N, and has room for P N tokens where rows will be.
TEST(DispatchMemory, OfAllTokensIsLessForUpToAsManyRanksAsATokenHasExperts) {
  for (const int ep : {2, 4, 8}) {
    const RunConfig config = block_of("qwen3-30b-a3b", ep);
    const double bound = MoeConfig().dispatch_bound, directly = static_cast<double>(block_bytes(config, 0, bound)),
                 to_all = static_cast<double>(block_bytes(config, 1, bound)) / directly;
    fmt::print("qwen3-30b-a3b over {}: all tokens to all {:.3f}x\n", ep, to_all);
    EXPECT_GT(to_all, 0.3);
    EXPECT_LE(to_all, 1);
  }
}

// Tokens at their node and copies of them need no memory of their own: they are where rows were or will be.
TEST(DispatchMemory, HasNoRoomForTokensOfOthers) {
  const RunConfig config = block_of_experts(8, 24);
  const std::int64_t tokens = 2048, rows = 6 * tokens, sent = 2 * tokens, row_bytes = 2048 * 4;
  const std::int64_t more = block_bytes(config, 4, 1.2) - block_bytes(config, 0, 1.2);
  // Of x and dy two hops send two rows of a token instead of six.
  EXPECT_LT(more, (2 * (sent - rows) + tokens) * row_bytes);
}

// Memory is a function of the bound alone, and grows with it up to all rows that could come.
TEST(HierarchicalDispatch, MemoryFollowsTheBound) {
  for (const int ranks_per_node : {4, 1}) {
    std::int64_t before = 0;
    for (const double bound : {0.5, 1.0, 2.0, 100.0}) {
      const Blueprint blueprint(config_of_nodes(8, ranks_per_node, bound));
      EXPECT_GT(blueprint.rank(0).arena_bytes(), before) << bound;
      before = blueprint.rank(0).arena_bytes();
    }
  }
}

}  // namespace
}  // namespace echelon::testing
