// What holds for every simulation, over layouts drawn by chance.
#include "predict/simulation/simulate.h"
#include "predict/step/step_work.h"
#include "schedule/generators/catalog.h"
#include "spec/stage_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace echelon {
namespace {

MachineSpec two_kinds_of_nodes(double bandwidth = 1e9) {
  NodeSpec node;
  node.name = "fast";
  node.count = 2;
  node.num_devices = 4;
  node.device = {.name = "fast",
                 .memory_bytes = 1 << 30,
                 .memory_bandwidth = 1e10,
                 .formats = {{"float32", {.peak_flops = 1e10}}}};
  node.link = {.bandwidth = bandwidth, .latency_seconds = 1e-6};
  node.num_nics = 1;
  node.nic_bandwidth = bandwidth / 4;
  NodeSpec slow = node;
  slow.name = "slow";
  slow.count = 64;
  slow.device.formats = {{"float32", {.peak_flops = 5e9}}};
  MachineSpec machine;
  machine.nodes = {node, slow};
  return machine;
}

RunConfig small_config() {
  RunConfig config;
  config.model = family_defaults(Family::llama);
  config.model.hidden_size = 32;
  config.model.num_hidden_layers = 8;
  config.model.num_attention_heads = config.model.num_key_value_heads = 4;
  config.model.head_dim = 8;
  config.model.intermediate_size = 64;
  config.model.vocab_size = 128;
  config.model.max_position_embeddings = 64;
  config.training.seq_len = 16;
  return config;
}

struct Drawn {
  RunConfig config;
  SimulationOptions options;
};

class Chance {
 public:
  explicit Chance(unsigned seed) : random_(seed) {}
  template <class T>
  T of(std::initializer_list<T> choices) {
    return std::data(choices)[random_() % choices.size()];
  }
  unsigned below(unsigned limit) { return static_cast<unsigned>(random_() % limit); }

 private:
  std::mt19937 random_;
};

Drawn draw(unsigned seed) {
  Chance chance(seed);
  Drawn drawn{.config = small_config(), .options = {}};
  ParallelConfig& p = drawn.config.parallelism;
  p.pipeline_parallel_degree = chance.of({1, 2, 4});
  p.tensor_parallel_degree = chance.of({1, 2, 3});
  if (p.tensor_parallel_degree == 3) p.tensor_parallel_degree = 4;
  p.data_parallel_shard_degree = chance.of({1, 2, 3});
  p.data_parallel_replicate_degree = chance.of({1, 1, 2});
  p.zero_level = chance.of({1, 2, 3});
  p.sequence_parallel = p.tensor_parallel_degree > 1 && chance.below(2) == 0;
  const auto schedules = all_schedules();
  p.pipeline_parallel_schedule = schedules[chance.below(static_cast<unsigned>(schedules.size()))].kind;
  drawn.config.model.tie_word_embeddings = chance.below(2) == 0;
  const std::int64_t num_microbatches = 2 * p.pipeline_parallel_degree * (1 + chance.below(2));
  drawn.config.training.global_batch_size =
      num_microbatches * p.data_parallel_shard_degree * p.data_parallel_replicate_degree;
  OverlapRules& overlap = drawn.options.profile.overlap;
  overlap.hides_transfers = chance.below(2) == 0;
  overlap.hides_gradient_reductions = chance.below(2) == 0;
  overlap.hides_parameter_gathers = chance.below(2) == 0;
  overlap.slowdown_by_collectives = chance.of({1.0, 1.25});
  const int num_ranks = drawn.config.mesh_shape().num_ranks();
  for (unsigned i = chance.below(3); i-- > 0;)
    drawn.options.slow_ranks[static_cast<int>(chance.below(static_cast<unsigned>(num_ranks)))] = chance.of({1.3, 2.0});
  return drawn;
}

constexpr unsigned num_layouts = 120;

template <class Check>
void for_layouts(Check check, unsigned step = 1) {
  for (unsigned seed = 0; seed < num_layouts; seed += step) {
    SCOPED_TRACE(seed);
    check(draw(seed));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

struct Played {
  explicit Played(const Drawn& drawn)
      : blueprint(drawn.config),
        machine(two_kinds_of_nodes()),
        devices(blueprint.mesh(), machine),
        works(blueprint, drawn.options.profile, devices, drawn.options.slow_ranks),
        events(play(works.work())) {}
  Blueprint blueprint;
  MachineSpec machine;
  DeviceMap devices;
  StepWorks works;
  StepEvents events;
};

// Claim (plans): `echelon simulate` runs a step's own programs as events: edges hold, a lane
//   carries one operation at a time, parts add up to the step. The bubble is that of the papers; a
//   slow rank or node delays all ranks that wait for it.
// Bound: 120 drawn layouts with every schedule; bubbles to 1e-9.
// Tests: Layouts|StepEvents|Simulate
TEST(Layouts, EdgesHoldAndLanesCarryOneAtATime) {
  for_layouts([](const Drawn& drawn) {
    const Played played(drawn);
    for (std::size_t rank = 0; rank < played.events.ranks.size(); ++rank) {
      const RankWork& work = played.works.work().ranks[rank];
      const std::vector<ActionTimes>& times = played.events.ranks[rank];
      std::map<int, double> lane_free;
      for (const Action& action : *work.program) {
        const ActionTimes& at = times[std::size_t(action.id)];
        for (const int before : action.after) ASSERT_LE(times[std::size_t(before)].end, at.issued) << to_string(action);
        ASSERT_LE(at.issued, at.ready);
        ASSERT_LE(at.ready, at.begin);
        ASSERT_LE(at.begin, at.end);
        const int lane = work.works[std::size_t(action.id)].lane;
        ASSERT_LE(lane_free[lane], at.begin) << to_string(action) << " on lane " << lane;
        lane_free[lane] = at.end;
      }
    }
  });
}

TEST(Layouts, WhoMeetsBeginsAndEndsTogether) {
  for_layouts([](const Drawn& drawn) {
    const Played played(drawn);
    std::map<int, std::vector<ActionTimes>> times_of;
    for (std::size_t rank = 0; rank < played.events.ranks.size(); ++rank)
      for (std::size_t action = 0; action < played.events.ranks[rank].size(); ++action) {
        const int rendezvous = played.works.work().ranks[rank].works[action].rendezvous;
        if (rendezvous != no_rendezvous) times_of[rendezvous].push_back(played.events.ranks[rank][action]);
      }
    for (const auto& [rendezvous, those] : times_of) {
      ASSERT_EQ(int(those.size()), played.works.work().rendezvous_sizes[std::size_t(rendezvous)]);
      double last = 0;
      for (const ActionTimes& each : those) last = std::max(last, each.ready);
      for (const ActionTimes& each : those) {
        ASSERT_EQ(each.begin, last);
        ASSERT_EQ(each.end, those.front().end);
      }
    }
  });
}

TEST(Layouts, PartsAddUpToTheStepOnEveryRank) {
  for_layouts([](const Drawn& drawn) {
    const Blueprint blueprint(drawn.config);
    const Simulation result = simulate(blueprint, two_kinds_of_nodes(), drawn.options);
    int num_ranks = 0;
    for (const SimulatedRank& rank : result.ranks) {
      ASSERT_NEAR(rank.parts.total_seconds(), result.step_seconds, 1e-9 * result.step_seconds);
      ASSERT_GE(rank.parts.bubble_seconds, 0);
      num_ranks += rank.num_ranks;
    }
    ASSERT_EQ(num_ranks, blueprint.mesh().num_ranks());
    ASSERT_NEAR(result.parts.total_seconds(), result.step_seconds, 1e-9 * result.step_seconds);
  });
}

TEST(Layouts, TheStandInsCountForAllRanks) {
  for_layouts([](const Drawn& drawn) {
    const Blueprint blueprint(drawn.config);
    const Simulation result = simulate(blueprint, two_kinds_of_nodes(), drawn.options);
    std::map<std::string, std::int64_t> sent;
    for (int rank = 0; rank < blueprint.mesh().num_ranks(); ++rank) {
      const RankBlueprint own = blueprint.rank(rank);
      for (const Action& action : own.program(ProgramKind::training))
        for (const CommRecord& record : own.trace(ProgramKind::training).of(action).communications())
          if (record.group_size > 1) sent[name_of(record.group)] += record.sent_bytes;
    }
    ASSERT_EQ(result.sent_bytes.size(), sent.size());
    for (const auto& [group, bytes] : sent) {
      if (group == "world") continue;  // sums of a few numbers do not divide evenly
      ASSERT_NEAR(double(result.sent_bytes.at(group)), double(bytes), 4000) << group;
    }
  });
}

TEST(Layouts, AFasterNetworkIsNeverSlower) {
  for_layouts(
      [](const Drawn& drawn) {
        const Blueprint blueprint(drawn.config);
        double before = 1e300;
        for (const double bandwidth : {1e8, 1e9, 1e10, 1e12}) {
          const double seconds = simulate(blueprint, two_kinds_of_nodes(bandwidth), drawn.options).step_seconds;
          ASSERT_LE(seconds, before * (1 + 1e-12));
          before = seconds;
        }
      },
      4);
}

}  // namespace
}  // namespace echelon
