// Rings of context-parallel ranks: what their attention takes, what hides their hops, and over which links they go.
#include "context/token_lists.h"
#include "predict/attention_machine.h"
#include "predict/simulation/simulate.h"
#include "predict/step/host_lane.h"
#include "spec/groups.h"

#include <gtest/gtest.h>

#include <map>

namespace echelon {
namespace {

RunConfig ring_config(std::int64_t cp, LoadBalancer balancer, std::int64_t seq_len) {
  RunConfig config;
  config.model = preset("llama-10m");
  config.model.num_hidden_layers = 2;
  config.model.max_position_embeddings = config.training.seq_len = seq_len;
  config.training.global_batch_size = config.training.micro_batch_size = 1;
  config.parallelism.context_parallel_degree = cp;
  config.parallelism.context_parallel_load_balancer = cp > 1 ? balancer : LoadBalancer::headtail;
  return config;
}

/// Of what cp ranks could do at best.
double efficiency(std::int64_t cp, LoadBalancer balancer) {
  constexpr std::int64_t seq_len = 1 << 17;
  const auto seconds = [&](std::int64_t degree) {
    return simulate(Blueprint(ring_config(degree, balancer, seq_len)), attention_machine()).step_seconds;
  };
  return seconds(1) / (static_cast<double>(cp) * seconds(cp));
}

// In lock step the last rank of contiguous chunks attends to a whole block at every hop but its own, on whose diagonal
// it has half of one: cp - 1/2 blocks, where cp / 2 would be its share.
TEST(ContextParallel, ContiguousChunksReachCpOverTwoCpMinusOne) {
  for (const std::int64_t cp : {2, 4, 8})
    EXPECT_NEAR(efficiency(cp, LoadBalancer::none), static_cast<double>(cp) / static_cast<double>(2 * cp - 1), 5e-5)
        << cp;
}

TEST(ContextParallel, HeadAndTailAndStripesAreEven) {
  EXPECT_NEAR(efficiency(8, LoadBalancer::headtail), 1, 5e-5);
  EXPECT_NEAR(efficiency(8, LoadBalancer::striped), 1, 1e-4);
}

// The slowest rank represents the ring, but the flops are those of all ranks.
TEST(ContextParallel, CountsTheFlopsOfAllRanks) {
  for (const LoadBalancer balancer : {LoadBalancer::none, LoadBalancer::striped, LoadBalancer::headtail}) {
    const double whole = simulate(Blueprint(ring_config(1, balancer, 4096)), attention_machine()).hardware_flops,
                 parts = simulate(Blueprint(ring_config(4, balancer, 4096)), attention_machine()).hardware_flops;
    EXPECT_NEAR(parts / whole, 1, 2e-3) << name_of(balancer);  // merging adds some
  }
}

/// Seconds of a block's forward pass on a rank if attention takes one second for each rank's mean of pairs over cp, and
/// a hop `hop_seconds`.
double forward_seconds(const RunConfig& config, double hop_seconds) {
  UnitTraces traces(config);
  const CallTrace& trace = traces.passes({.role = UnitKind::Role::block}, 0).of(PassKind::forward, true);
  const auto cp = static_cast<double>(config.parallelism.context_parallel_degree);
  const auto T = static_cast<double>(config.training.seq_len), per_hop = T * (T + 1) / 2 / cp / cp;
  const CostEvents events = cost_events(trace, [&](const OpRecord& operation) {
    return operation.kind == OpKind::attention ? static_cast<double>(operation.n) / per_hop : 0;
  });
  return events.seconds([&](const CommRecord& record) { return record.group == cp_group ? hop_seconds : 0; });
}

// Attention to the block of a hop goes on while the next block arrives; the last block is attended to after all hops.
TEST(ContextParallel, AHopOverlapsTheAttentionOfTheStepBefore) {
  const RunConfig config = ring_config(4, LoadBalancer::headtail, 4096);
  for (const double hop : {0.0, 0.5, 1.0, 3.0})
    EXPECT_NEAR(forward_seconds(config, hop), 3 * std::max(1.0, hop) + 1, 2e-3) << hop;
}

// Keys and values go together: a hop is one message each way, whatever it sends.
TEST(ContextParallel, AHopIsPostedAtOnce) {
  UnitTraces traces(ring_config(4, LoadBalancer::headtail, 4096));
  const CallTrace& trace = traces.passes({.role = UnitKind::Role::block}, 0).of(PassKind::forward, true);
  const HostCosts costs = {.collective_seconds = 1};
  const IssueTime time = issue_time(
      trace, costs, [](const OpRecord&) { return 0.0; }, [](const CommRecord&) { return 0.0; });
  EXPECT_DOUBLE_EQ(time.issue_seconds, 3);
  std::int64_t sent = 0, posted = 0;
  for (const CommRecord& record : trace.communications())
    if (record.group == cp_group) sent += record.sent_bytes;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    if (!std::holds_alternative<CommRecord>(trace.events[i])) continue;
    const PostedMessage message = posted_at(trace.events, i);
    if (message.record.group == cp_group) posted += message.record.num_elements * size_of(message.record.dtype);
    i += message.num_records - 1;
  }
  EXPECT_EQ(posted, sent);
}

/// By hop, the step of attention after which a rank waits for what it sent.
std::vector<int> send_waits(std::int64_t cp) {
  UnitTraces traces(ring_config(cp, LoadBalancer::headtail, 4096));
  const CallTrace& trace = traces.passes({.role = UnitKind::Role::block}, 0).of(PassKind::forward, true);
  std::vector<bool> is_key_send;  // by number of a communication
  std::vector<int> waits;
  int num_attended = 0, num_waits = 0;
  for (const TraceEvent& event : trace.events) {
    if (const auto* op = std::get_if<OpRecord>(&event)) {
      num_attended += op->kind == OpKind::attention ? 1 : 0;
    } else if (const auto* record = std::get_if<CommRecord>(&event)) {
      is_key_send.push_back(record->group == cp_group && record->kind == CommKind::send);
    } else if (is_key_send.at(std::get<CommWait>(event).start) && num_waits++ % 2 == 0) {  // keys, then values
      waits.push_back(num_attended);
    }
  }
  return waits;
}

// A rank does not wait until the next one has read what it sends, before the memory is needed: what arrives in a hop is
// sent in the next, and arrives in the one after that. Its own keys stay.
TEST(ContextParallel, ARankThatIsAheadOfTheNextOneAttends) {
  EXPECT_EQ(send_waits(2), (std::vector{2}));
  EXPECT_EQ(send_waits(3), (std::vector{3, 3}));
  EXPECT_EQ(send_waits(4), (std::vector{2, 4, 4}));
}

/// Bytes that a block's pass sends over cp, by kind and dtype, as the profile's software sends them.
std::map<std::pair<CommKind, DType>, std::int64_t> sent_by(const char* profile, PassKind pass) {
  RunConfig config = ring_config(4, LoadBalancer::headtail, 4096);
  config.training.dtype = DType::bfloat16;
  UnitTraces traces(config);
  const Action action = {.kind = pass == PassKind::forward ? ActionKind::forward : ActionKind::backward};
  const CallTrace& trace = traces.passes({.role = UnitKind::Role::block}, 0).of(pass, true);
  std::map<std::pair<CommKind, DType>, std::int64_t> sent;
  for (const CommRecord& record : rewritten(software_profile(profile), config, action, trace).communications())
    if (record.group == cp_group && record.sent_bytes > 0) sent[{record.kind, record.dtype}] += record.sent_bytes;
  return sent;
}

// b: bytes of a rank's keys and values in 16 bits.
TEST(ContextParallel, OtherSoftwareGathersKeysOrRoundsTheirGradients) {
  using Sent = std::map<std::pair<CommKind, DType>, std::int64_t>;
  const ModelSpec model = preset("llama-10m");
  const std::int64_t b = 2 * 1024 * model.num_key_value_heads * model.head_dim * 2;
  const auto half = DType::bfloat16, wide = DType::float32;
  EXPECT_EQ(sent_by("echelon", PassKind::forward), (Sent{{{CommKind::send, half}, 3 * b}}));
  EXPECT_EQ(sent_by("megatron-core", PassKind::forward), (Sent{{{CommKind::send, half}, 3 * b}}));
  const std::int64_t of_queries = b * model.num_attention_heads / model.num_key_value_heads;  // torchtitan repeats keys
  EXPECT_EQ(sent_by("torchtitan", PassKind::forward), (Sent{{{CommKind::all_gather, half}, 3 * of_queries}}));
  EXPECT_EQ(sent_by("llama3", PassKind::forward), (Sent{{{CommKind::all_gather, half}, 3 * b}}));
  EXPECT_EQ(sent_by("echelon", PassKind::backward),
            (Sent{{{CommKind::send, half}, 3 * b}, {{CommKind::send, wide}, 6 * b}}));
  EXPECT_EQ(sent_by("megatron-core", PassKind::backward), (Sent{{{CommKind::send, half}, 6 * b}}));
  EXPECT_EQ(sent_by("torchtitan", PassKind::backward),
            (Sent{{{CommKind::all_gather, half}, 3 * of_queries}, {{CommKind::send, wide}, 6 * of_queries}}));
}

TEST(ContextParallel, ARingGoesAtThePaceOfItsSlowestMember) {
  const Blueprint blueprint(ring_config(4, LoadBalancer::headtail, 4096));
  const double even = simulate(blueprint, attention_machine()).step_seconds;
  for (const int rank : {0, 3}) {
    const Simulation slow = simulate(blueprint, attention_machine(), {.slow_ranks = {{rank, 2}}});
    EXPECT_NEAR(slow.step_seconds, 2 * even, 1e-3 * even) << rank;
    ASSERT_EQ(slow.ranks.size(), 1U);
    EXPECT_EQ(slow.ranks.front().num_ranks, 4);
  }
}

}  // namespace
}  // namespace echelon
