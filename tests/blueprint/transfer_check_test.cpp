// The proof that hops of rings and what else layers send cannot deadlock: of the engine's own traces, and of ones that
// were spoilt.
#include "blueprint/traffic/transfer_check.h"

#include "blueprint/small_config.h"
#include "spec/groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace echelon::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RunConfig ring_of(int cp) {
  RunConfig config = small_config();
  config.parallelism.context_parallel_degree = cp;
  return config;
}

/// The forward passes of a block on the ranks of a cp group.
RankEvents forward_passes(const RunConfig& config) {
  const UnitTraces units(config);
  RankEvents ranks;
  for (int rank = 0; rank < static_cast<int>(config.parallelism.context_parallel_degree); ++rank)
    ranks[rank] = units.first_passes({.role = UnitKind::Role::block}, rank).front().events;
  return ranks;
}

bool is_start_of(const TraceEvent& event, CommKind kind) {
  const auto* record = std::get_if<CommRecord>(&event);
  return record != nullptr && record->kind == kind;
}

/// Each transfer of the first of two kinds starts, and is waited for, before those of the other start.
std::vector<TraceEvent> one_after_the_other(const std::vector<TraceEvent>& events, CommKind first) {
  std::vector<TraceEvent> spoilt;
  std::vector<CommRecord> records;
  for (const TraceEvent& event : events)
    if (const auto* record = std::get_if<CommRecord>(&event)) records.push_back(*record);
  const CommKind second = first == CommKind::send ? CommKind::receive : CommKind::send;
  std::size_t num_starts = 0;
  for (const CommKind kind : {first, second})
    for (const CommRecord& record : records)
      if (record.kind == kind) {
        spoilt.emplace_back(record);
        spoilt.emplace_back(CommWait{num_starts++});
      }
  return spoilt;
}

MeshShape mesh_of(const RunConfig& config) { return config.mesh_shape(); }

TEST(TransferCheck, FindsNothingInTheEnginesPasses) {
  for (const ContextMethod method :
       {ContextMethod::ring, ContextMethod::all_gather, ContextMethod::ulysses, ContextMethod::ulysses_ring}) {
    RunConfig config = ring_of(4);
    config.parallelism.context_parallel_method = method;
    config.parallelism.context_parallel_ulysses_degree = method == ContextMethod::ulysses_ring ? 2 : 0;
    for (const int tp : {1, 2}) {
      config.model.num_attention_heads = config.model.num_key_value_heads = 8;
      config.model.head_dim = 4;
      config.parallelism.tensor_parallel_degree = tp;
      config.parallelism.sequence_parallel = tp > 1;
      EXPECT_THAT(check_transfers(Blueprint(config)), IsEmpty()) << name_of(method);
    }
  }
}

// There is something to prove: every hop sends keys and values.
TEST(TransferCheck, SeesTheHopsOfARing) {
  const RankEvents ranks = forward_passes(ring_of(3));
  for (const auto& [rank, events] : ranks)
    EXPECT_EQ(std::ranges::count_if(events, [](const TraceEvent& e) { return is_start_of(e, CommKind::send); }), 4);
}

TEST(TransferCheck, FindsARingInWhichAllSendFirst) {
  RankEvents ranks = forward_passes(ring_of(3));
  for (auto& [rank, events] : ranks) events = one_after_the_other(events, CommKind::send);
  EXPECT_THAT(check_transfers(mesh_of(ring_of(3)), ranks),
              ElementsAre(AllOf(HasSubstr("deadlock"), HasSubstr("rank 0 waits for its send to rank 1 over cp"),
                                HasSubstr("rank 1 waits for its send to rank 2 over cp"),
                                HasSubstr("rank 2 waits for its send to rank 0 over cp"))));
}

TEST(TransferCheck, FindsARingInWhichAllReceiveFirst) {
  RankEvents ranks = forward_passes(ring_of(2));
  for (auto& [rank, events] : ranks) events = one_after_the_other(events, CommKind::receive);
  EXPECT_THAT(check_transfers(mesh_of(ring_of(2)), ranks), ElementsAre(HasSubstr("its receive from rank")));
}

// Nothing is wrong with sends first if one rank receives first. Of one hop: the next one sends what this one received.
TEST(TransferCheck, LetsOneRankReceiveFirst) {
  const MeshShape mesh = mesh_of(ring_of(3));
  RankEvents ranks;
  for (int rank = 0; rank < 3; ++rank) {
    const CommRecord send = {.kind = CommKind::send, .group = cp_group, .group_size = 3, .peer = (rank + 1) % 3},
                     receive = {.kind = CommKind::receive, .group = cp_group, .group_size = 3, .peer = (rank + 2) % 3};
    ranks[rank] = one_after_the_other({send, receive}, rank == 1 ? CommKind::receive : CommKind::send);
  }
  EXPECT_THAT(check_transfers(mesh, ranks), IsEmpty());
  ranks[1] = one_after_the_other(ranks[1], CommKind::send);
  EXPECT_THAT(check_transfers(mesh, ranks), ElementsAre(HasSubstr("deadlock")));
}

// Two groups are entered in different orders.
TEST(TransferCheck, FindsCollectivesInDifferentOrders) {
  RunConfig config = ring_of(2);
  config.parallelism.tensor_parallel_degree = 2;
  const CommRecord over_cp = {.kind = CommKind::all_gather, .group = cp_group, .group_size = 2},
                   over_tp = {.kind = CommKind::all_reduce, .group = tp_group, .group_size = 2};
  const auto events = [](const CommRecord& first, const CommRecord& second) {
    return std::vector<TraceEvent>{first, CommWait{0}, second, CommWait{1}};
  };
  RankEvents ranks;
  for (int rank = 0; rank < 4; ++rank)
    ranks[rank] = rank == 0 || rank == 3 ? events(over_cp, over_tp) : events(over_tp, over_cp);
  EXPECT_THAT(check_transfers(config.mesh_shape(), ranks),
              ElementsAre(AllOf(HasSubstr("deadlock"), HasSubstr("the all_gather over cp"),
                                HasSubstr("the all_reduce over tp"))));
  for (auto& [rank, of_rank] : ranks) of_rank = events(over_cp, over_tp);
  EXPECT_THAT(check_transfers(config.mesh_shape(), ranks), IsEmpty());
}

TEST(TransferCheck, FindsWhatIsNotMatchedOrNotWaitedFor) {
  const RankEvents good = forward_passes(ring_of(2));
  const MeshShape mesh = mesh_of(ring_of(2));
  ASSERT_THAT(check_transfers(mesh, good), IsEmpty());

  RankEvents lost = good;
  std::erase_if(lost[1], [](const TraceEvent& e) { return !is_start_of(e, CommKind::send); });
  EXPECT_THAT(check_transfers(mesh, lost),
              Contains(HasSubstr("rank 0: its send to rank 1 over cp has no counterpart")));

  RankEvents longer = good;
  for (TraceEvent& event : longer[0])
    if (auto* record = std::get_if<CommRecord>(&event)) ++record->num_elements;
  EXPECT_THAT(check_transfers(mesh, longer), Contains(HasSubstr("elements of")));

  RankEvents unfinished = good;
  std::erase_if(unfinished[0], [](const TraceEvent& e) { return std::holds_alternative<CommWait>(e); });
  EXPECT_THAT(check_transfers(mesh, unfinished), Contains(HasSubstr("is waited for by nothing in the pass")));
}

// tensor 4 x context 8 x pipeline 4 x data 8. That it takes no more than one group of 32 ranks does is measured by
// the number of ranks that are traced: more pipeline or data ranks add none.
TEST(TransferCheck, ProvesAThousandAndTwentyFourRanks) {
  RunConfig config = ring_of(8);
  config.model.num_attention_heads = config.model.num_key_value_heads = 8;
  config.model.head_dim = 4;
  config.training.global_batch_size = 64;
  ParallelConfig& p = config.parallelism;
  p.tensor_parallel_degree = 4;
  p.sequence_parallel = true;
  p.pipeline_parallel_degree = 4;
  p.data_parallel_shard_degree = 8;
  const Blueprint blueprint(config);
  ASSERT_EQ(blueprint.mesh().num_ranks(), 1024);
  EXPECT_THAT(check_transfers(blueprint), IsEmpty());
}

}  // namespace
}  // namespace echelon::testing
