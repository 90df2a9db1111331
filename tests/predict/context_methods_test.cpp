// Methods of context parallelism: what each rank computes, what is posted together, and over which links it goes.
#include "predict/attention_machine.h"
#include "predict/machine/network_time.h"
#include "predict/simulation/simulate.h"
#include "predict/step/host_lane.h"
#include "spec/groups.h"

#include <gtest/gtest.h>

#include <map>
#include <ostream>

namespace echelon {
namespace {

constexpr KeyExchange exchanges[] = {{ContextMethod::ring, 1},
                                     {ContextMethod::all_gather, 1},
                                     {ContextMethod::ulysses, 4},
                                     {ContextMethod::ulysses_ring, 2}};

/// Four query heads for each of two kv heads; four context-parallel ranks, or one.
RunConfig config_of(const KeyExchange& exchange, LoadBalancer balancer, std::int64_t cp = 4) {
  RunConfig config;
  config.model = preset("llama-10m");
  config.model.num_hidden_layers = 2;
  config.model.num_attention_heads = 8;
  config.model.num_key_value_heads = 2;
  config.model.head_dim = 32;
  config.model.max_position_embeddings = config.training.seq_len = 8192;
  config.training.global_batch_size = config.training.micro_batch_size = 1;
  ParallelConfig& p = config.parallelism;
  p.context_parallel_degree = cp;
  if (cp == 1) return config;
  p.context_parallel_load_balancer = balancer;
  p.context_parallel_method = exchange.method;
  if (exchange.method == ContextMethod::ulysses_ring) p.context_parallel_ulysses_degree = exchange.head_ranks;
  return config;
}

// Heads have the same sequence. Of contiguous chunks the last of four ranks has 7/4 of its share, the last two of a
// ring of two 3/2.
TEST(ContextMethods, TakeAsLongAsTheRankWithTheMostPairs) {
  const auto step = [](const RunConfig& config) { return simulate(Blueprint(config), attention_machine()); };
  const Simulation whole = step(config_of({}, LoadBalancer::headtail, 1));
  const double shares[] = {7.0 / 4, 7.0 / 4, 1, 3.0 / 2};
  for (std::size_t i = 0; i < std::size(exchanges); ++i)
    for (const LoadBalancer balancer : {LoadBalancer::headtail, LoadBalancer::none}) {
      const Simulation parts = step(config_of(exchanges[i], balancer));
      const double share = balancer == LoadBalancer::none ? shares[i] : 1;
      EXPECT_NEAR(4 * parts.step_seconds / whole.step_seconds, share, 1e-3) << i << name_of(balancer);
      EXPECT_NEAR(parts.hardware_flops / whole.hardware_flops, 1, 4e-3) << i << name_of(balancer);  // merging adds some
    }
}

struct Posted {
  std::int64_t num_messages = 0, bytes = 0, sent_bytes = 0;
  bool operator==(const Posted&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Posted& posted) {
  return out << posted.num_messages << " messages of " << posted.bytes << " bytes, of which " << posted.sent_bytes
             << " are sent";
}

/// Of a block's pass on one rank, by group.
std::map<std::string, Posted> posted_by(const KeyExchange& exchange, PassKind pass) {
  RunConfig config = config_of(exchange, LoadBalancer::headtail);
  config.training.dtype = DType::bfloat16;
  UnitTraces traces(config);
  const CallTrace& trace = traces.passes({.role = UnitKind::Role::block}, 0).of(pass, true);
  std::map<std::string, Posted> posted;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    if (!std::holds_alternative<CommRecord>(trace.events[i])) continue;
    const PostedMessage message = posted_at(trace.events, i);
    i += message.num_records - 1;
    if (message.record.group.axes != cp_group.axes) continue;
    Posted& all = posted[name_of(message.record.group)];
    ++all.num_messages;
    all.bytes += message.record.num_elements * size_of(message.record.dtype);
    all.sent_bytes += message.record.sent_bytes;
  }
  return posted;
}

// b, q: bytes of a rank's keys and values and of its queries. Gathers are of a kv head each, both tensors at once; a
// gather's size is that of its result.
TEST(ContextMethods, PostOneMessageForAllTensors) {
  using All = std::map<std::string, Posted>;
  constexpr std::int64_t rows = 2048, q = rows * 8 * 32 * 2, b = rows * 2 * 2 * 32 * 2;
  EXPECT_EQ(posted_by({ContextMethod::ring, 1}, PassKind::forward), (All{{"cp", {3, 3 * b, 3 * b}}}));
  EXPECT_EQ(posted_by({ContextMethod::all_gather, 1}, PassKind::forward), (All{{"cp", {2, 4 * b, 3 * b}}}));
  EXPECT_EQ(posted_by({ContextMethod::all_gather, 1}, PassKind::backward), (All{{"cp", {4, 8 * b, 6 * b}}}));
  // A rank gets one of two kv heads, so that each of them goes to two ranks.
  EXPECT_EQ(posted_by({ContextMethod::ulysses, 4}, PassKind::forward),
            (All{{"cp", {2, 2 * q + 2 * b, 3 * (2 * q + 2 * b) / 4}}}));
  EXPECT_EQ(posted_by({ContextMethod::ulysses, 4}, PassKind::backward),
            (All{{"cp", {2, 4 * q + 4 * b, 3 * (4 * q + 4 * b) / 4}}}));
  EXPECT_EQ(posted_by({ContextMethod::ulysses_ring, 2}, PassKind::forward),
            (All{{"cp/2", {2, 2 * q + b, (2 * q + b) / 2}}, {"cp%2", {1, b, b}}}));
}

/// Seconds of a block's forward pass if attention takes one second in all, and a message `seconds` each.
double seconds_by(const KeyExchange& exchange, double seconds) {
  const RunConfig config = config_of(exchange, LoadBalancer::headtail);
  UnitTraces traces(config);
  const CallTrace& trace = traces.passes({.role = UnitKind::Role::block}, 0).of(PassKind::forward, true);
  double flops = 0;
  for (const OpRecord& operation : trace.operations())
    if (operation.kind == OpKind::attention) flops += static_cast<double>(operation.flops);
  const CostEvents events = cost_events(trace, [&](const OpRecord& operation) {
    return operation.kind == OpKind::attention ? static_cast<double>(operation.flops) / flops : 0;
  });
  return events.seconds([&](const CommRecord& record) { return record.group.axes == cp_group.axes ? seconds : 0; });
}

// What nothing hides: the first kv head of a gather, the exchange of heads before and after. The hops of rings and the
// other heads are on their way during attention.
TEST(ContextMethods, WaitForWhatNothingHides) {
  for (const double message : {0.0, 0.1, 0.2, 2.0}) {
    EXPECT_NEAR(seconds_by({ContextMethod::all_gather, 1}, message), message + std::max(0.5, message) + 0.5, 2e-3);
    EXPECT_NEAR(seconds_by({ContextMethod::ulysses, 4}, message), 1 + 2 * message, 2e-3);
    EXPECT_NEAR(seconds_by({ContextMethod::ulysses_ring, 2}, message), 2 * message + std::max(0.5, message) + 0.5,
                2e-3);
  }
}

/// Ranks of the ring of `rank`, one after the other, where the `num_rings` in a row are in different ones.
std::vector<int> ring_of(const MeshShape& mesh, int num_rings, int rank) {
  return mesh.ranks_of({AxisSet{Axis::cp}, Group::Part::strided, num_rings}, rank);
}
int next_of(const MeshShape& mesh, int num_rings, int rank) {
  const std::vector<int> ring = ring_of(mesh, num_rings, rank);
  const auto own = std::find(ring.begin(), ring.end(), rank) - ring.begin();
  return ring[static_cast<std::size_t>(own + 1) % ring.size()];
}

/// By counting: the least that a hop has of the cards of a node which some rank along the axis of rank 0 leaves; 0 if
/// none does.
double least_share(const MeshShape& mesh, int num_rings, const DeviceMap& devices, const NodeSpec& node) {
  const auto leaves = [&](int rank) {
    return devices.node_of(rank) != devices.node_of(next_of(mesh, num_rings, rank));
  };
  double least = 0;
  for (const int rank : mesh.ranks_of(cp_group, 0)) {
    if (!leaves(rank)) continue;
    int num_sharers = 0;
    for (int each = 0; each < mesh.num_ranks(); ++each)
      num_sharers += devices.node_of(each) == devices.node_of(rank) && leaves(each) ? 1 : 0;
    const double all = static_cast<double>(node.num_nics) * node.nic_bandwidth,
                 own = std::max(node.nic_bandwidth, all / static_cast<double>(node.num_devices));
    const double share = std::min(all / num_sharers, own);
    least = least == 0 ? share : std::min(least, share);
  }
  return least;
}

TEST(ContextMethods, HopsUseTheCardsOfTheRanksThatLeaveTheNode) {
  for (const std::int64_t num_nics : {1, 4, 8})
    for (const auto& [cp, tp, order] : {std::tuple{2, 1, "tp-cp-dp-pp"},
                                        {8, 1, "tp-cp-dp-pp"},
                                        {16, 1, "tp-cp-dp-pp"},
                                        {4, 4, "tp-cp-dp-pp"},
                                        {4, 8, "tp-cp-dp-pp"},
                                        {2, 8, "cp-tp-dp-pp"},
                                        {2, 4, "tp-dp-cp-pp"},
                                        {4, 2, "tp-dp-cp-pp"}})
      for (int num_rings = 1; num_rings < cp; num_rings *= 2) {
        MachineSpec machine = attention_machine();
        NodeSpec& node = machine.nodes.front();
        node.num_nics = num_nics;
        node.nic_bandwidth = 1;
        const MeshShape mesh({{Axis::dp_shard, 4}, {Axis::cp, cp}, {Axis::tp, tp}}, parse_axis_order("order", {order}));
        const DeviceMap devices(mesh, machine);
        const GroupPlacement placement = devices.placement_of_rings(Axis::cp, num_rings, 0);
        const double counted = least_share(mesh, num_rings, devices, node);
        EXPECT_EQ(placement.num_nodes, counted > 0 ? 2 : 1) << cp << " " << tp << " " << order << num_rings;
        if (counted > 0) {
          EXPECT_DOUBLE_EQ(placement.cards_bandwidth, counted) << cp << " " << tp << " " << order << num_rings;
        }
      }
}

// Twelve ranks on nodes of eight: of their blocks of four none crosses, of those of six the second does.
TEST(ContextMethods, HeadsGoOverTheLinksOfTheWorstBlock) {
  const MachineSpec machine = attention_machine();
  const MeshShape mesh({{Axis::dp_shard, 2}, {Axis::cp, 12}});
  const DeviceMap devices(mesh, machine);
  EXPECT_EQ(devices.placement_of_blocks(Axis::cp, 4, 0).num_nodes, 1);
  EXPECT_EQ(devices.placement_of_blocks(Axis::cp, 6, 0).num_nodes, 2);
  CommRecord exchange = {.kind = CommKind::all_to_all, .group = cp_heads_group(6), .group_size = 6};
  EXPECT_EQ(placement_of(exchange, 0, devices).num_nodes, 2);
}

}  // namespace
}  // namespace echelon
