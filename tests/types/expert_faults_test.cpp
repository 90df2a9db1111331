// Faults that experts over ranks could have, planted one at a time: types find each before anything is computed.
#include "parity/layout.h"
#include "spec/groups.h"
#include "types/planted.h"

#include <gmock/gmock.h>

namespace echelon::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Of eight experts on ep ranks.
RunConfig experts(int shard, int tp, int ep) {
  return config_of({.shard = shard,
                    .tp = tp,
                    .sequence_parallel = tp > 1,
                    .microbatches = 1,
                    .zero = 2,
                    .layers = 1,
                    .experts = 8,
                    .router_losses = true,
                    .ep = ep});
}

const std::vector<RunConfig>& configs() {
  static const std::vector<RunConfig> all = {experts(4, 1, 2), experts(2, 2, 2), experts(2, 2, 4), experts(1, 2, 2)};
  return all;
}

/// Collectives of a kind and group are done over other groups.
PlantInMesh instead_of(CommKind kind, const Group& group, std::vector<Group> others) {
  return [=](const Collective& collective) {
    return collective.kind == kind && collective.group == group ? others : std::vector{collective.group};
  };
}

TEST(ExpertFaults, NothingPlantedIsNoFault) {
  for (const RunConfig& config : configs()) EXPECT_EQ(fault_of(config, {}), "");
}

TEST(ExpertFaults, GradientsThatAreNotSummedOverTheRanksOfTheSameExperts) {
  for (const RunConfig& config : {experts(4, 1, 2), experts(2, 2, 2)})
    EXPECT_THAT(fault_of(config, {.mesh = instead_of(CommKind::reduce_scatter, expert_holders_group(2), {})}),
                HasSubstr("addends of each rank's experts"));
}

TEST(ExpertFaults, GradientsThatAreSummedOverDifferentExperts) {
  EXPECT_THAT(fault_of(experts(4, 1, 2),
                       {.mesh = instead_of(CommKind::reduce_scatter, expert_holders_group(2), {expert_group(2)})}),
              HasSubstr("would add up different experts"));
}

TEST(ExpertFaults, GradientsOfDenseLayersThatAreSummedAsThoseOfExperts) {
  EXPECT_THAT(fault_of(experts(2, 2, 2),
                       {.mesh = instead_of(CommKind::reduce_scatter, shard_group, {expert_holders_group(2)})}),
              HasSubstr("are the ranks with the same experts alone"));
}

/// Exchanges of rows: x there with weights, and y back; dy there, and dx with the gradients of weights back.
constexpr int num_exchanges = 6;

PlantInMesh in_exchange(int which, std::vector<Group> others) {
  return [=, seen = std::make_shared<int>(0)](const Collective& collective) {
    const bool is_rows = collective.kind == CommKind::all_to_all && collective.group.axes == expert_axes;
    return is_rows && (*seen)++ == which ? others : std::vector{collective.group};
  };
}

TEST(ExpertFaults, RowsThatAreNotSentOrDoNotComeBack) {
  for (const RunConfig& config : configs())
    for (int which = 0; which < num_exchanges; ++which)
      EXPECT_NE(fault_of(config, {.mesh = in_exchange(which, {})}), "") << which;
}

TEST(ExpertFaults, RowsThatAreSentToOtherRanks) {
  for (int which = 0; which < num_exchanges; ++which)
    EXPECT_THAT(fault_of(experts(2, 2, 2), {.mesh = in_exchange(which, {expert_holders_group(2)})}),
                HasSubstr("whose ranks have no experts of each other's"));
}

/// Two ranks of an expert group on each of two nodes.
RunConfig in_two_hops(int shard, int tp) {
  RunConfig config = experts(shard, tp, 4);
  config.parallelism.expert_dispatch = ExpertDispatch::hierarchical;
  config.parallelism.ranks_per_node = 2;
  return config;
}

TEST(ExpertFaults, HopsThatAreLeftOut) {
  for (const RunConfig& config : {in_two_hops(4, 1), in_two_hops(8, 1), in_two_hops(2, 2)}) {
    EXPECT_EQ(fault_of(config, {}), "");
    for (int which = 0; which < 2 * num_exchanges; ++which)
      EXPECT_NE(fault_of(config, {.mesh = in_exchange(which, {})}), "") << which;
  }
}

TEST(ExpertFaults, HopsThatGoToOtherRanks) {
  const RunConfig config = in_two_hops(4, 1);
  EXPECT_THAT(fault_of(config, {.mesh = in_exchange(0, {expert_inner_group(2)})}),
              HasSubstr("but rows of tokens go to experts and come back over"));
  EXPECT_NE(fault_of(config, {.mesh = in_exchange(2, {expert_across_group(4, 2)})}), "");
  EXPECT_NE(fault_of(config, {.mesh = in_exchange(0, {expert_group(4)})}), "");
}

RunConfig with_all_tokens(int shard, int tp, int ep, int etp = 1) {
  RunConfig config = experts(shard, tp, ep);
  config.parallelism.expert_dispatch = ExpertDispatch::all_gather;
  config.parallelism.expert_tensor_parallel_degree = etp;
  return config;
}

/// Of tokens or sums, which are floats; what routers chose is not.
PlantInMesh in_gather(CommKind kind, int which, std::vector<Group> others) {
  return [=, seen = std::make_shared<int>(0)](const Collective& collective) {
    const Group& group = collective.group;
    const bool is_of_tokens = collective.kind == kind && group.axes == expert_axes &&
                              group.part == Group::Part::block && collective.x.dtype != DType::int32;
    return is_of_tokens && (*seen)++ == which ? others : std::vector{group};
  };
}

TEST(ExpertFaults, TokensThatDoNotComeToAllRanksOrSumsThatDoNotReturn) {
  for (const RunConfig& config : {with_all_tokens(4, 1, 2), with_all_tokens(2, 2, 2), with_all_tokens(2, 2, 4),
                                  with_all_tokens(4, 1, 2, 2), with_all_tokens(4, 1, 1, 2)}) {
    EXPECT_EQ(fault_of(config, {}), "");
    for (const CommKind kind : {CommKind::all_gather, CommKind::reduce_scatter})
      for (int which = 0; which < num_exchanges / 2; ++which)
        EXPECT_NE(fault_of(config, {.mesh = in_gather(kind, which, {})}), "") << name_of(kind) << " " << which;
  }
}

TEST(ExpertFaults, TokensOfOtherRanksAndSumsOverThem) {
  const RunConfig config = with_all_tokens(4, 1, 2);
  for (const CommKind kind : {CommKind::all_gather, CommKind::reduce_scatter})
    for (int which = 0; which < num_exchanges / 2; ++which)
      EXPECT_NE(fault_of(config, {.mesh = in_gather(kind, which, {expert_holders_group(2)})}), "") << which;
}

/// Of y, of the gradients of weights and of dx: sums of a rank, and what has returned but for the last, whose place has
/// the type of x.
TEST(ExpertFaults, SumsOfTokensThatAreLeftOut) {
  const auto skip = [](const CombineExpertsArgs&) { return false; };
  for (const int etp : {1, 2})
    for (int which = 0; which < num_exchanges - 1; ++which)
      EXPECT_NE(fault_of(with_all_tokens(4, 1, 2, etp), {.ops = in_one<CombineExpertsArgs>(which, skip)}), "") << which;
}

/// Two ranks have features of each expert. A token has three rows, so that only an expert's row is summed of two.
RunConfig with_features(int shard, int tp, int ep) {
  RunConfig config = experts(shard, tp, ep);
  config.parallelism.expert_tensor_parallel_degree = 2;
  config.model.mixture.num_experts_per_tok = 3;
  return config;
}
std::vector<RunConfig> all_with_features() {
  return {with_features(4, 1, 2), with_features(8, 1, 2), with_features(2, 2, 2), with_features(4, 2, 4),
          with_features(4, 1, 1)};
}

TEST(ExpertFaults, RowsThatDoNotComeToAllRanksOfFeaturesOrBack) {
  for (const RunConfig& config : all_with_features()) {
    EXPECT_EQ(fault_of(config, {}), "");
    for (int which = 0; which < 2 * num_exchanges; ++which)
      EXPECT_NE(fault_of(config, {.mesh = in_exchange(which, {})}), "") << which;
  }
}

TEST(ExpertFaults, RowsOfFeaturesThatGoToOtherRanks) {
  const RunConfig config = with_features(4, 1, 2);
  EXPECT_NE(fault_of(config, {.mesh = in_exchange(0, {expert_inner_group(2)})}), "");
  EXPECT_NE(fault_of(config, {.mesh = in_exchange(2, {expert_across_group(4, 2)})}), "");
  EXPECT_NE(fault_of(config, {.mesh = in_exchange(0, {expert_group(4)})}), "");
}

/// Sums of y, dx and the gradients of weights, each over the ranks of an expert's features.
PlantInOps without_sum_of_features(int which) {
  return [=, seen = std::make_shared<int>(0)](StoredOperation& operation) {
    const auto* args = std::get_if<CombineExpertsArgs>(&operation);
    const bool is_sum = args != nullptr && args->slots.size(1) == 2 && args->y.size(0) == args->slots.num_elements() &&
                        args->slots.data != nullptr && args->out.size(0) * 2 == args->y.size(0);
    return !is_sum || (*seen)++ != which;
  };
}

TEST(ExpertFaults, AddendsOfARowThatAreNotSummed) {
  for (const RunConfig& config : all_with_features())
    for (int which = 0; which < 3; ++which)
      EXPECT_NE(fault_of(config, {.ops = without_sum_of_features(which)}), "") << which;
}

TEST(ExpertFaults, GradientsOfFeaturesThatAreSummedOverOtherRanks) {
  const RunConfig config = with_features(8, 1, 2);
  EXPECT_THAT(fault_of(config, {.mesh = instead_of(CommKind::reduce_scatter, expert_holders_group(4), {})}),
              HasSubstr("addends of each rank's experts"));
  EXPECT_NE(fault_of(config, {.mesh = instead_of(CommKind::reduce_scatter, expert_holders_group(4),
                                                 {expert_holders_group(2)})}),
            "");
}

TEST(ExpertFaults, SlotsThatAreNotOfWhatHasCome) {
  const auto skip = [](const ArrivedSlotsArgs&) { return false; };
  for (const RunConfig& config : configs())
    EXPECT_THAT(fault_of(config, {.ops = in_one<ArrivedSlotsArgs>(0, skip)}), HasSubstr("ever written"));
}

/// Sums of counts over the ranks of a group; not those of a step's report, which have one dim.
PlantInMesh without_sums_of_counts(const Group& group) {
  return [=](const Collective& collective) {
    const bool is_counts = collective.kind == CommKind::all_reduce && collective.group == group &&
                           collective.x.sizes.num_dims() == 2 && collective.x.dtype == DType::float64;
    return is_counts ? std::vector<Group>() : std::vector{collective.group};
  };
}

TEST(ExpertFaults, ARouterLossOfAPartOfASequence) {
  EXPECT_THAT(fault_of(experts(2, 2, 2), {.mesh = without_sums_of_counts(sequence_group)}),
              AllOf(HasSubstr("router_losses"), HasSubstr("counts"), HasSubstr("partial over")));
}

TEST(ExpertFaults, ABiasOfTheCountsOfOneRank) {
  for (const RunConfig& config : {experts(4, 1, 2), experts(2, 2, 2)})
    EXPECT_THAT(fault_of(config, {.mesh = without_sums_of_counts(step_group)}),
                AllOf(HasSubstr("balance_experts"), HasSubstr("counts"), HasSubstr("partial over")));
}

TEST(ExpertFaults, ExpertsThatAreNotInTheNorm) {
  const auto leave_out = [](RankRun& run) {
    for (Param* param : run.model().part().params())
      if (param->name.find(".experts.") != std::string::npos) param->is_first_copy = false;
  };
  for (const RunConfig& config : configs())
    EXPECT_THAT(fault_of(config, {.run = leave_out}), HasSubstr("is not in the norm"));
}

}  // namespace
}  // namespace echelon::testing
