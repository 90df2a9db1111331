// How much longer operations take on operands that are far away.
#include "predict/host/operand_distances.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

RunConfig config_of(std::int64_t width, int num_ranks) {
  RunConfig config;
  config.model = family_defaults(Family::llama);
  config.model.hidden_size = width;
  config.model.num_hidden_layers = 8;
  config.model.num_attention_heads = config.model.num_key_value_heads = 4;
  config.model.head_dim = width / 4;
  config.model.intermediate_size = 3 * width;
  config.model.vocab_size = 64;
  config.model.max_position_embeddings = 64;
  config.training.seq_len = 16;
  config.training.global_batch_size = 8;
  config.parallelism.data_parallel_replicate_degree = num_ranks;
  return config;
}

/// Up to `near` bytes cost nothing more, and from `far` on a second for each byte.
HostSpec host_of(int num_cores, std::int64_t near, std::int64_t far) {
  HostSpec host;
  host.num_cores = num_cores;
  for (int kind = 0; kind < num_op_kinds; ++kind)
    host.distances[std::string(name_of(static_cast<OpKind>(kind)))]["float32"] = {{near, 0, 0}, {far, 1, 0.5}};
  return host;
}

CoreSeconds sum_of(const RunConfig& config, const HostSpec& host, std::optional<OpKind> kind) {
  const Blueprint blueprint(config);
  const RankBlueprint rank = blueprint.rank(0);
  HostTime time(host, blueprint.mesh().num_ranks());
  const auto seconds = distance_seconds(blueprint, rank, ProgramKind::training, time);
  CoreSeconds sum;
  for (const Action& action : rank.program(ProgramKind::training)) {
    const std::vector<OpRecord> operations = rank.trace(ProgramKind::training).of(action).operations();
    const std::vector<CoreSeconds>& of_action = seconds[static_cast<std::size_t>(action.id)];
    EXPECT_EQ(of_action.size(), operations.size());
    for (std::size_t i = 0; i < operations.size(); ++i)
      if (!kind || operations[i].kind == *kind) sum += of_action[i];
  }
  return sum;
}

// The update of a unit finds its moments where the last step left them, its gradients where clipping did, and its
// parameters where the last pass did: all of them farther away than the state of one unit is long.
TEST(OperandDistances, AnUpdateFindsTheStateOfAllOtherUnitsBefore) {
  constexpr std::int64_t width = 512;
  const RunConfig config = config_of(width, 1);
  constexpr std::int64_t numbers_of_unit = (4 + 9) * width * width + 2 * width;
  constexpr std::int64_t bytes_of_number = 16;  // parameter, gradient and two moments
  const HostSpec host =
      host_of(1, bytes_of_number * numbers_of_unit * 5 / 4, bytes_of_number * numbers_of_unit * 3 / 2);
  const Blueprint blueprint(config);
  const RankBlueprint rank = blueprint.rank(0);
  double updated = 0;
  for (const Action& action : rank.program(ProgramKind::training))
    for (const OpRecord& operation : rank.trace(ProgramKind::training).of(action).operations())
      if (operation.kind == OpKind::adamw) updated += static_cast<double>(operation.m);
  const CoreSeconds sum = sum_of(config, host, OpKind::adamw);
  EXPECT_GE(updated, 8.0 * numbers_of_unit);
  EXPECT_NEAR(sum.busy / (bytes_of_number * updated), 1, 1e-3);
  EXPECT_NEAR(sum.shared / sum.busy, 0.5, 1e-9);
}

TEST(OperandDistances, RanksThatShareACorePushTheirOperandsAway) {
  constexpr int num_ranks = 8;
  const RunConfig config = config_of(32, num_ranks);
  const Blueprint blueprint(config);
  const std::int64_t arena = blueprint.rank(0).arena_bytes();
  const auto seconds = [&](int num_cores) {
    return sum_of(config, host_of(num_cores, 2 * arena, 3 * arena), std::nullopt).busy;
  };
  EXPECT_EQ(seconds(num_ranks), 0);
  EXPECT_GT(seconds(1), static_cast<double>(arena));
}

}  // namespace
}  // namespace echelon
