// Which dispatch of rows to experts follows from the hosts of a job.
#include "train/run_placement.h"

#include "base/error.h"
#include "blueprint/small_config.h"

#include <gmock/gmock.h>

#include <vector>

namespace echelon::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

RunConfig over_four_ranks(std::int64_t expert_parallel_degree) {
  RunConfig config = small_config();
  config.model.family = Family::mixtral;
  config.model.mixture = {.num_experts = 8, .num_experts_per_tok = 2, .moe_intermediate_size = 8};
  config.parallelism.data_parallel_shard_degree = 4;
  config.parallelism.expert_parallel_degree = expert_parallel_degree;
  return config;
}

struct OnHosts {
  std::vector<int> hosts;
  std::int64_t ep;
  int on_node;
  const char* described;
};

TEST(RunPlacement, OfEvenHostsTakesTwoHopsByItself) {
  for (const OnHosts& each : {OnHosts{{0, 0, 1, 1}, 4, 2, "in two hops over 2 nodes, with 2 of the 4 ranks"},
                              {{0, 0, 0, 0}, 4, 0, ""},
                              {{0, 0, 1, 1}, 2, 0, ""},
                              {{0, 1, 2, 3}, 4, 0, "directly, since each host has one of the 4 ranks"},
                              {{0, 0, 0, 1}, 4, 0, "directly, since one host has 3 ranks and another has 1"},
                              {{0, 1, 0, 1}, 4, 0, "directly, since rank 2 is on a host of ranks before rank 1"}}) {
    SCOPED_TRACE(fmt::format("hosts {}, ep {}", fmt::join(each.hosts, " "), each.ep));
    const RunConfig config = with_nodes(over_four_ranks(each.ep), each.hosts);
    EXPECT_EQ(ep_on_node(config), each.on_node);
    const std::string described = dispatch_description(config, each.hosts);
    EXPECT_EQ(described.empty(), *each.described == 0) << described;
    EXPECT_THAT(described, HasSubstr(each.described));
  }
}

TEST(RunPlacement, AKeyIsStrongerThanHosts) {
  const std::vector<int> hosts = {0, 0, 1, 1};
  RunConfig config = over_four_ranks(4);
  config.parallelism.expert_dispatch = ExpertDispatch::direct;
  EXPECT_EQ(with_nodes(config, hosts), config);
  EXPECT_EQ(dispatch_description(config, hosts), "");
  config.parallelism.expert_dispatch = ExpertDispatch::automatic;
  config.parallelism.ranks_per_node = 4;
  EXPECT_EQ(with_nodes(config, hosts), config);
}

TEST(RunPlacement, RefusesTwoHopsOverUnevenHosts) {
  RunConfig config = over_four_ranks(4);
  config.parallelism.expert_dispatch = ExpertDispatch::hierarchical;
  EXPECT_EQ(ep_on_node(with_nodes(config, std::vector<int>{0, 0, 1, 1})), 2);
  EXPECT_THAT(
      [&] {
        (void)with_nodes(config, std::vector<int>{0, 0, 0, 1});
      },
      ThrowsMessage<Error>(HasSubstr("one host has 3 ranks and another has 1 (use 'direct')")));
  EXPECT_THAT(
      [&] {
        (void)with_nodes(config, std::vector<int>{0, 1, 2, 3});
      },
      ThrowsMessage<Error>(HasSubstr("gives every node one of the 4 ranks")));
}

}  // namespace
}  // namespace echelon::testing
