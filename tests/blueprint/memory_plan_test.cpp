#include "blueprint/memory_plan.h"

#include "blueprint/blueprint.h"
#include "blueprint/small_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <random>

namespace echelon {
namespace {

PlannedBuffer buffer(int index, std::int64_t num_bytes, int first, int last) {
  return {.key = {BufferRole::stash, index},
          .category = MemoryCategory::activations,
          .num_bytes = num_bytes,
          .first_action = first,
          .last_action = last};
}

bool meet_in_time(const PlannedBuffer& a, const PlannedBuffer& b) {
  if (a.first_action == always || b.first_action == always) return true;
  return a.first_action <= b.last_action && b.first_action <= a.last_action;
}

bool meet_in_space(const PlannedBuffer& a, const PlannedBuffer& b) {
  return a.offset < b.offset + b.num_bytes && b.offset < a.offset + a.num_bytes;
}

TEST(MemoryPlan, BuffersThatLiveTogetherNeverShareBytes) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<PlannedBuffer> buffers;
    for (int i = 0; i < 40; ++i) {
      const int scale = round % 2 == 0 ? 1 : 1 + static_cast<int>(random() % 300);  // up to thousands of actions
      const int first = scale * static_cast<int>(random() % 30), last = first + scale * static_cast<int>(random() % 10);
      const bool lives_always = random() % 8 == 0;
      buffers.push_back(buffer(i, static_cast<std::int64_t>(64 * (1 + random() % 20)), lives_always ? always : first,
                               lives_always ? always : last));
    }
    const MemoryPlan plan(buffers);
    ASSERT_EQ(plan.buffers().size(), buffers.size());
    std::int64_t end = 0;
    for (const PlannedBuffer& a : plan.buffers()) {
      end = std::max(end, a.offset + a.num_bytes);
      for (const PlannedBuffer& b : plan.buffers())
        EXPECT_FALSE(a.key != b.key && meet_in_time(a, b) && meet_in_space(a, b))
            << a.key.index << " and " << b.key.index;
    }
    EXPECT_EQ(plan.num_bytes(), end);
    EXPECT_GE(plan.num_bytes(), plan.peak_bytes(MemoryCategory::activations));
  }
}

// Two halves of the program that hold much: the second more in all, the first more of each kind apart.
TEST(MemoryPlan, SaysWhatIsHeldWhenMostIs) {
  std::vector<PlannedBuffer> buffers = {buffer(0, 640, 0, 3), buffer(1, 320, 5, 8), buffer(2, 384, 6, 6),
                                        buffer(3, 128, always, always), buffer(4, 64, 7, 9)};
  buffers[2].category = MemoryCategory::workspace;
  buffers[3].category = MemoryCategory::parameters;
  buffers[3].padding_bytes = 28;
  const MemoryPlan plan(buffers);
  const std::map<MemoryCategory, std::int64_t> expected = {{MemoryCategory::parameters, 100},
                                                           {MemoryCategory::padding, 28},
                                                           {MemoryCategory::activations, 320},
                                                           {MemoryCategory::workspace, 384}};
  EXPECT_EQ(plan.bytes_at_peak(), expected);
  EXPECT_EQ(plan.peak_bytes(MemoryCategory::activations), 640);
}

TEST(MemoryPlan, DisjointLifetimesShareTheirPlace) {
  const MemoryPlan plan({buffer(0, 128, 0, 3), buffer(1, 128, 4, 6), buffer(2, 64, 2, 5)});
  EXPECT_EQ(plan.num_bytes(), 192);
  EXPECT_EQ(plan.at({BufferRole::stash, 0}).offset, plan.at({BufferRole::stash, 1}).offset);
}

// Weights and optimizer state stay where they are when another program runs.
TEST(MemoryPlan, BothProgramsHaveWhatOutlivesThemInOnePlace) {
  RunConfig config = testing::small_config();
  config.training.dtype = DType::bfloat16;
  config.parallelism.tensor_parallel_degree = config.parallelism.pipeline_parallel_degree =
      config.parallelism.data_parallel_shard_degree = 2;
  const Blueprint blueprint(config);
  const RankBlueprint rank = blueprint.rank(3);
  int num_persistent = 0;
  for (const PlannedBuffer& buffer : rank.memory(ProgramKind::training).buffers()) {
    if (buffer.first_action != always) continue;
    ++num_persistent;
    const PlannedBuffer& other = rank.memory(ProgramKind::evaluation).at(buffer.key);
    EXPECT_EQ(std::pair(buffer.offset, buffer.num_bytes), std::pair(other.offset, other.num_bytes));
  }
  EXPECT_GT(num_persistent, 10);
}

// Narayanan et al. 2021, section 2.2: 1F1B holds the activations of at most p - stage microbatches, GPipe those of all.
TEST(MemoryPlan, ActivationsFollowTheSchedule) {
  for (const PipelineSchedule schedule :
       {PipelineSchedule::one_f_one_b, PipelineSchedule::gpipe, PipelineSchedule::naive})
    for (const std::int64_t microbatches : {1, 2, 4, 8}) {
      RunConfig config = testing::small_config();
      config.parallelism.pipeline_parallel_degree = 4;
      config.parallelism.pipeline_parallel_schedule = schedule;
      config.training.global_batch_size = microbatches * config.training.micro_batch_size;
      const Blueprint blueprint(config);
      for (int stage = 0; stage < 4; ++stage) {
        const RankBlueprint rank = blueprint.rank(stage);
        const RankTrace::Saved& saved = rank.trace(ProgramKind::training).saved(stage);
        const std::int64_t in_flight = schedule == PipelineSchedule::naive ? 1
                                       : schedule == PipelineSchedule::gpipe
                                           ? microbatches
                                           : std::min<std::int64_t>(microbatches, 4 - stage);
        EXPECT_EQ(rank.memory(ProgramKind::training).peak_bytes(MemoryCategory::activations),
                  in_flight * (saved.stash.num_bytes + saved.input_stash.num_bytes))
            << "stage " << stage << " of " << microbatches;
      }
    }
}

// What a rank keeps at most, read off the order of its schedule: a stash from forward to the last backward, that of B's
// alone to B, what B keeps from B to W.
std::int64_t kept_at_most(const ComputeOrder& order, const RankTrace& trace) {
  std::int64_t kept = 0, most = 0;
  for (const Action& pass : order) {
    const RankTrace::Saved& saved = trace.saved(pass.stage);
    const std::int64_t for_input = saved.input_stash.num_bytes, stash = saved.stash.num_bytes + for_input,
                       gradients = saved.gradient_stash.num_bytes;
    if (pass.kind == ActionKind::forward) kept += stash;
    if (pass.kind == ActionKind::backward_input) kept += gradients;
    most = std::max(most, kept);
    if (pass.kind == ActionKind::backward_input) kept -= for_input;
    if (pass.kind == ActionKind::backward_weight) kept -= stash - for_input + gradients;
    if (pass.kind == ActionKind::backward) kept -= stash;
  }
  return most;
}

TEST(MemoryPlan, ActivationsAreWhatTheScheduleKeepsInFlight) {
  constexpr int p = 3;
  for (const int m : {1, 3, 7}) {
    RunConfig config = testing::small_config();
    config.model.num_hidden_layers = 2 * p + 1;
    config.parallelism.pipeline_parallel_degree = p;
    config.training.global_batch_size = m * config.training.micro_batch_size;
    for (const ScheduleEntry& entry : all_schedules()) {
      if (m < p * entry.microbatches_per_rank) continue;
      config.parallelism.pipeline_parallel_schedule = entry.kind;
      const Blueprint blueprint(config);
      for (int rank = 0; rank < p; ++rank) {
        const RankBlueprint plan = blueprint.rank(rank);
        const RankTrace& trace = plan.trace(ProgramKind::training);
        EXPECT_EQ(plan.memory(ProgramKind::training).peak_bytes(MemoryCategory::activations),
                  kept_at_most(blueprint.schedule().ranks[rank], trace))
            << entry.name << " rank " << rank;
      }
    }
  }
}

/// Padded elements of each unit of one rank without a pipeline.
std::vector<std::int64_t> unit_elements(const Blueprint& blueprint) {
  std::vector<std::int64_t> elements;
  const ModelPart part = make_model_part(blueprint.config(), blueprint.schedule(), 0);
  for (const ShardedUnit* unit : part.units()) {
    elements.push_back(0);
    for (const Bucket& bucket : unit->buckets()) elements.back() += bucket.num_elements;
  }
  return elements;
}

// Rajbhandari et al. 2020, figure 1: with Adam, psi parameters cost (2 + 2 + 12) psi bytes in bfloat16 (here also 2 + 4
// + 12 with float32 gradients, and 4 + 4
// + 8 in float32, which has no second copy); level 1 divides the last term by N, level 2 the last two, level 3 all. To
// the byte over all ranks, padding apart; and no rank has more than its share of the padded whole. Replicas of a
// sharded model (hybrid sharding) cost each what it costs.
struct StateBytes {
  DType dtype, grad_dtype;
  std::int64_t parameter, gradient, state;
  std::optional<DType> moments_dtype = {};
  bool stores_remainders = false;
};

TEST(MemoryPlan, PersistentBytesAreTheZeroPapers) {
  for (const StateBytes& each : {StateBytes{DType::float32, DType::float32, 4, 4, 8},
                                 {DType::bfloat16, DType::float32, 2, 4, 12},
                                 {DType::bfloat16, DType::bfloat16, 2, 2, 12},
                                 {DType::float64, DType::float64, 8, 8, 16},
                                 {DType::bfloat16, DType::float32, 2, 4, 8, DType::bfloat16},
                                 {DType::bfloat16, DType::float32, 2, 4, 10, {}, true},
                                 {DType::float32, DType::float32, 4, 4, 4, DType::bfloat16}})
    for (const int degree : {1, 2, 3, 5, 8})
      for (const int level : {1, 2, 3})
        for (const int replicas : {1, 2}) {
          RunConfig config = testing::small_config();
          config.training.dtype = each.dtype;
          config.training.grad_dtype = each.grad_dtype;
          config.optimizer.moments_dtype = each.moments_dtype;
          config.optimizer.store_param_remainders = each.stores_remainders;
          config.parallelism.data_parallel_shard_degree = degree;
          config.parallelism.data_parallel_replicate_degree = replicas;
          config.parallelism.zero_level = level;
          config.training.global_batch_size = 2 * degree * replicas;
          const Blueprint blueprint(config);
          const std::int64_t psi = config.model.num_parameters(), N = degree;
          std::int64_t padded = 0;
          for (const std::int64_t elements : unit_elements(blueprint)) padded += elements;
          std::int64_t parameters = 0, gradients = 0, states = 0;
          for (int rank = 0; rank < degree * replicas; ++rank) {
            const RankBlueprint plan = blueprint.rank(rank);
            const MemoryPlan& memory = plan.memory(ProgramKind::training);
            const auto bytes = [&](MemoryCategory category) { return memory.peak_bytes(category); };
            parameters += bytes(MemoryCategory::parameters);
            gradients += bytes(MemoryCategory::gradients);
            states += bytes(MemoryCategory::moments) + bytes(MemoryCategory::master_weights);
            const std::int64_t cut = (level >= 3 ? each.parameter : 0) + (level >= 2 ? each.gradient : 0) + each.state;
            const std::int64_t whole = each.parameter + each.gradient + each.state - cut;
            const std::int64_t of_rank = bytes(MemoryCategory::parameters) + bytes(MemoryCategory::gradients) +
                                         bytes(MemoryCategory::moments) + bytes(MemoryCategory::master_weights);
            EXPECT_LE(of_rank, whole * psi + cut * padded / N);
          }
          const auto expected = [&](std::int64_t bytes, bool is_cut) {
            return bytes * psi * (is_cut ? 1 : N) * replicas;
          };
          EXPECT_EQ(parameters, expected(each.parameter, level >= 3))
              << name_of(each.dtype) << " over " << degree << " at level " << level;
          EXPECT_EQ(gradients, expected(each.gradient, level >= 2))
              << name_of(each.dtype) << " over " << degree << " at level " << level;
          EXPECT_EQ(states, expected(each.state, true))
              << name_of(each.dtype) << " over " << degree << " at level " << level;
        }
}

// With experts over P ranks, and their features over L, the same of two buckets: what is not sharded is on N ranks of
// the dense part, and N / (P L) of the experts.
TEST(MemoryPlan, PersistentBytesOfExpertsAreThoseOfTheirHolders) {
  for (const auto& [N, P, L] :
       {std::array{2, 2, 1}, {4, 2, 1}, {4, 4, 1}, {8, 2, 1}, {2, 1, 2}, {4, 2, 2}, {8, 2, 2}, {8, 1, 4}})
    for (const int level : {1, 2, 3}) {
      RunConfig config = testing::small_config();
      config.model = family_defaults(Family::mixtral);
      ModelSpec& model = config.model;
      model.num_hidden_layers = 3;
      model.num_attention_heads = model.num_key_value_heads = 2;
      model.head_dim = 8;
      model.hidden_size = 16;
      model.vocab_size = 32;
      model.max_position_embeddings = 16;
      model.mixture.num_experts = 8;
      model.mixture.num_experts_per_tok = 2;
      model.intermediate_size = model.mixture.moe_intermediate_size = 24;
      config.training.seq_len = 16;
      config.training.dtype = DType::bfloat16;
      config.parallelism.data_parallel_shard_degree = N;
      config.parallelism.expert_parallel_degree = P;
      config.parallelism.expert_tensor_parallel_degree = L;
      config.parallelism.zero_level = level;
      config.training.global_batch_size = 2 * N;
      const Blueprint blueprint(config);
      std::int64_t parameters = 0, gradients = 0, states = 0;
      for (int rank = 0; rank < N; ++rank) {
        const RankBlueprint plan = blueprint.rank(rank);
        const auto bytes = [&](MemoryCategory category) {
          return plan.memory(ProgramKind::training).peak_bytes(category);
        };
        parameters += bytes(MemoryCategory::parameters);
        gradients += bytes(MemoryCategory::gradients);
        states += bytes(MemoryCategory::moments) + bytes(MemoryCategory::master_weights);
      }
      const std::int64_t of_experts = 3 * 8 * 3 * 16 * 24, dense = model.num_parameters() - of_experts;
      const auto expected = [&, N = N, P = P, L = L](std::int64_t bytes, bool is_cut) {
        return bytes * (dense * (is_cut ? 1 : N) + of_experts * (is_cut ? 1 : N / (P * L)));
      };
      EXPECT_EQ(parameters, expected(2, level >= 3))
          << N << " ranks, experts over " << P << " x " << L << ", level " << level;
      EXPECT_EQ(gradients, expected(4, level >= 2))
          << N << " ranks, experts over " << P << " x " << L << ", level " << level;
      EXPECT_EQ(states, expected(12, true)) << N << " ranks, experts over " << P << " x " << L << ", level " << level;
    }
}

// What is whole for a while: the parameters of a unit and of the next one, and the gradients of a unit and of the one
// behind it, which is reduced meanwhile; or all parameters of the stage where they stay for a microbatch or a step. 1
// MiB of it is more than the rest of this model's workspace: 2 sequences of 4 heads of 8, of which 16 positions are one
// tile of 128.
TEST(MemoryPlan, CountsTheScratchOfAttentionsGradientsWhereTheDeviceWantsIt) {
  const auto workspace_bytes = [](DeviceChoice device, DType dtype, const std::function<void(RunConfig&)>& change) {
    RunConfig config = testing::small_config();
    config.training.device = device;
    config.training.dtype = dtype;
    config.training.deterministic = false;
    change(config);
    const Blueprint blueprint(config);
    return blueprint.rank(0).memory(ProgramKind::training).peak_bytes(MemoryCategory::workspace);
  };
  const auto same = [](RunConfig&) {};
  const auto with_documents = [](RunConfig& config) { config.data.reset_attention_mask = true; };
  constexpr std::int64_t scratch = 2 * 4 * 128 * (8 + 1) * 4 + (1 << 20);
  EXPECT_GT(workspace_bytes(DeviceChoice::cuda, DType::bfloat16, same), scratch);
  EXPECT_GT(workspace_bytes(DeviceChoice::cuda, DType::bfloat16,
                            [](RunConfig& config) { config.training.deterministic = true; }),
            scratch)
      << "in deterministic mode too, which cuDNN needs from 9.25 on";
  EXPECT_GT(workspace_bytes(DeviceChoice::cuda, DType::bfloat16, with_documents), scratch)
      << "for sequences of one document";
  EXPECT_LT(workspace_bytes(DeviceChoice::cuda, DType::bfloat16,
                            [&](RunConfig& config) {
                              with_documents(config);
                              config.training.cuda_graphs = true;
                            }),
            scratch)
      << "which graphs do not tell apart";
  EXPECT_GT(workspace_bytes(DeviceChoice::cuda, DType::bfloat16,
                            [](RunConfig& config) { config.parallelism.context_parallel_degree = 2; }),
            scratch)
      << "for the blocks of a ring";
  EXPECT_LT(workspace_bytes(DeviceChoice::cuda, DType::float32, same), scratch);
  EXPECT_LT(workspace_bytes(DeviceChoice::cpu, DType::bfloat16, same), scratch);
}

/// Of `count` units that follow each other.
std::int64_t most_together(const std::vector<std::int64_t>& elements, std::size_t count) {
  std::int64_t most = 0;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    std::int64_t sum = 0;
    for (std::size_t j = i; j < std::min(i + count, elements.size()); ++j) sum += elements[j];
    most = std::max(most, sum);
  }
  return most;
}

TEST(MemoryPlan, WholeUnitsAreThereTwoAtATimeOrAsManyAsAreGatheredAhead) {
  for (const auto reshard : {ReshardAfterForward::microbatch, ReshardAfterForward::never, ReshardAfterForward::step})
    for (const std::int64_t depth : {1, 2, 3}) {
      RunConfig config = testing::small_config();
      config.model.num_hidden_layers = 5;
      config.parallelism.prefetch_depth = depth;
      config.parallelism.data_parallel_shard_degree = 2;
      config.parallelism.zero_level = 3;
      config.parallelism.reshard_after_forward = reshard;
      const Blueprint blueprint(config);
      const RankBlueprint rank = blueprint.rank(0);
      const std::vector<std::int64_t> elements = unit_elements(blueprint);
      const std::int64_t all = most_together(elements, elements.size()), neighbours = most_together(elements, 2),
                         ahead = most_together(elements, static_cast<std::size_t>(depth) + 1);
      const MemoryPlan& memory = rank.memory(ProgramKind::training);
      EXPECT_EQ(memory.peak_bytes(MemoryCategory::gathered_parameters),
                4 * (reshard == ReshardAfterForward::microbatch ? ahead : all));
      EXPECT_EQ(memory.peak_bytes(MemoryCategory::unreduced_gradients), 4 * neighbours);
      EXPECT_EQ(rank.memory(ProgramKind::evaluation).peak_bytes(MemoryCategory::gathered_parameters),
                4 * (reshard == ReshardAfterForward::step ? all : ahead));
    }
}

}  // namespace
}  // namespace echelon
