// Faults that the exchange of heads and the gathering of keys could have, planted one at a time: types find each before
// anything is computed.
#include "parity/layout.h"
#include "spec/groups.h"
#include "types/planted.h"

#include <gmock/gmock.h>

namespace echelon::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

/// 8 query heads, which share 2 kv heads.
RunConfig exchanging(ContextMethod method, int cp, int u = 0) {
  return config_of({.microbatches = 1, .layers = 1, .cp = cp, .seq_len = 13, .method = method, .ulysses = u});
}
RunConfig ulysses(int cp) { return exchanging(ContextMethod::ulysses, cp); }

template <class Args>
PlantInOps without(int before) {
  return in_one<Args>(before, [](const Args&) { return false; });
}

TEST(ExchangeFaults, NothingPlantedIsNoFault) {
  for (const int cp : {2, 4, 8}) EXPECT_EQ(fault_of(ulysses(cp), {}), "") << cp;
  for (const int cp : {2, 3}) EXPECT_EQ(fault_of(exchanging(ContextMethod::all_gather, cp), {}), "") << cp;
  for (const int u : {1, 2, 4, 8}) EXPECT_EQ(fault_of(exchanging(ContextMethod::ulysses_ring, 8, u), {}), "") << u;
}

// q, k, v and out forward; q, k, v, out, dout, dq, dk and dv backward. What is there instead was never written, or is
// another exchange's.
TEST(ExchangeFaults, AnExchangeThatIsLeftOut) {
  const auto is_named = AnyOf(HasSubstr("ever written"), HasSubstr("do not belong together"),
                              HasSubstr("rows of heads are exchanged over"), HasSubstr("but another part is"),
                              HasSubstr("nothing has gathered it"));
  for (int which = 0; which < 12; ++which)
    for (const RunConfig& config : {ulysses(4), exchanging(ContextMethod::ulysses_ring, 4, 2)})
      EXPECT_THAT(fault_of(config, {.ops = without<GatherRowsArgs>(which)}), is_named) << which;
}

// Four ranks have the same kv heads two by two.
TEST(ExchangeFaults, GradientsOfReplicasThatAreNotSummed) {
  const auto first_alone = [](JoinHeadsArgs& args) {
    args.copies = 1;
    args.x = args.x.rows(0, args.y.size(1));
    return true;
  };
  // out forward; dq, dk and dv backward
  for (const int which : {2, 3})
    EXPECT_THAT(fault_of(ulysses(4), {.ops = in_one<JoinHeadsArgs>(which, first_alone)}),
                AllOf(HasSubstr("addends of parts"), HasSubstr("on 2 ranks each over cp"),
                      HasSubstr("but 1 of 2 ranks are added")))
        << which;
}

TEST(ExchangeFaults, StatisticsThatAreNotOfTheseHeads) {
  const auto scratch = [](AttentionBackwardArgs& args) {
    std::swap(args.lse, args.delta);
    return true;
  };
  EXPECT_THAT(fault_of(ulysses(2), {.ops = in_one<AttentionBackwardArgs>(0, scratch)}), HasSubstr("lse"));
}

TEST(ExchangeFaults, ABlockOfTheRingThatIsLeftOutOrSeenTwice) {
  EXPECT_THAT(fault_of(exchanging(ContextMethod::ulysses_ring, 4, 2), {.ops = without<MergeAttentionArgs>(0)}),
              HasSubstr("is attended to 1 of the ring's blocks over cp, but"));
  const auto own_keys = [first = std::make_shared<std::optional<AttentionArgs>>()](StoredOperation& operation) {
    auto* args = std::get_if<AttentionArgs>(&operation);
    if (args == nullptr) return true;
    if (!*first) *first = *args;
    args->k = (*first)->k;
    args->v = (*first)->v;
    args->mask = (*first)->mask;
    return true;
  };
  EXPECT_THAT(fault_of(exchanging(ContextMethod::ulysses_ring, 4, 2), {.ops = own_keys}),
              HasSubstr("do not belong together"));
}

// Every rank has as many tokens, so that both orders have as many rows.
std::vector<RunConfig> with_gathered_rows() {
  std::vector<RunConfig> configs = {ulysses(4), exchanging(ContextMethod::ulysses_ring, 4, 2),
                                    exchanging(ContextMethod::all_gather, 2)};
  for (RunConfig& config : configs) config.training.seq_len = 16;
  return configs;
}

TEST(ExchangeFaults, RowsThatStayInTheOrderOfTheRanksLists) {
  const auto in_place = [](StoredOperation& operation) {
    if (const auto* gather = std::get_if<GatherRowsArgs>(&operation))
      operation = CopyArgs{.out = gather->y, .x = gather->x};
    return true;
  };
  for (const RunConfig& config : with_gathered_rows()) {
    EXPECT_EQ(fault_of(config, {}), "");
    EXPECT_THAT(fault_of(config, {.ops = in_place}),
                AllOf(HasSubstr("rank after rank"), HasSubstr("but rows are attended to in ascending order")));
  }
}

PlantInOps left_in_ascending_order() {
  return [first = std::make_shared<Tensor>()](StoredOperation& operation) {
    const auto* gather = std::get_if<GatherRowsArgs>(&operation);
    if (gather == nullptr) return true;
    if (!first->exists()) *first = gather->index;
    if (gather->index.data != first->data) operation = CopyArgs{.out = gather->y, .x = gather->x};
    return true;
  };
}

TEST(ExchangeFaults, RowsThatGoBackInAscendingOrder) {
  for (const RunConfig& config : with_gathered_rows())
    EXPECT_THAT(fault_of(config, {.ops = left_in_ascending_order()}),
                HasSubstr("in ascending order, but each rank of 'cp"));
}

PlantInOps gathered_by_the_first_index() {
  return [first = std::make_shared<Tensor>()](StoredOperation& operation) {
    auto* gather = std::get_if<GatherRowsArgs>(&operation);
    if (gather == nullptr) return true;
    if (!first->exists()) *first = gather->index;
    gather->index = *first;
    return true;
  };
}

TEST(ExchangeFaults, RowsByTheIndexOfTheOtherWay) {
  for (const RunConfig& config : with_gathered_rows())
    EXPECT_THAT(fault_of(config, {.ops = gathered_by_the_first_index()}),
                HasSubstr("but the index takes rows rank after rank"));
}

TEST(ExchangeFaults, GradientsOfGatheredKeysThatAreNotSummed) {
  const auto none = [](const Collective& collective) {
    const bool is_of_keys = collective.kind == CommKind::reduce_scatter && collective.group == cp_group;
    return is_of_keys ? std::vector<Group>() : std::vector{collective.group};
  };
  EXPECT_THAT(fault_of(exchanging(ContextMethod::all_gather, 2), {.mesh = none}), HasSubstr("ever written"));
}

TEST(ExchangeFaults, KeysThatAreNotGathered) {
  const auto none = [](const Collective& collective) {
    const bool is_of_keys = collective.kind == CommKind::all_gather && collective.group == cp_group;
    return is_of_keys ? std::vector<Group>() : std::vector{collective.group};
  };
  EXPECT_THAT(fault_of(exchanging(ContextMethod::all_gather, 2), {.mesh = none}), HasSubstr("ever written"));
}

}  // namespace
}  // namespace echelon::testing
