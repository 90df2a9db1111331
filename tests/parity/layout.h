// Layouts and the small models that they are tried on.
#pragma once

#include "spec/config/run_config.h"

#include <iosfwd>
#include <string>
#include <vector>

namespace echelon::testing {

struct Layout {
  int replicate = 1, shard = 1, tp = 1, pp = 1;
  bool sequence_parallel = false;
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  int virtual_stages = 0;  // per rank; 0: the schedule's default
  int microbatches = 2;
  Family family = Family::llama;
  bool tied = false;
  int zero = 1;  // of a shard axis
  ReshardAfterForward reshard = ReshardAfterForward::microbatch;
  int layers = 0;                                   // 0: one more than stages, hence uneven
  std::vector<std::int64_t> layers_per_stage = {};  // empty: spread evenly
  std::string order = {};                           // of the axes over the ranks; empty: the default
  bool documents = false;                           // attention within documents, of which a sequence has a few
  int cp = 1;
  LoadBalancer balancer = LoadBalancer::headtail;
  int window = 0;   // of the layers after the first one
  int seq_len = 0;  // 0: 12, or what sequence parallelism divides
  ContextMethod method = ContextMethod::ring;
  int ulysses = 0;  // ranks that exchange heads in ulysses_ring
  BlockOperations recompute = {};
  int experts = 0;             // of a layer, of which each token has two; 0: all layers are dense
  bool dense_between = false;  // every second layer has no experts
  bool router_losses = false;  // all of them
  int ep = 1, etp = 0;         // etp 0: 1 with sequence parallelism, or tp
  double bound = 1.2;          // of rows in one round of an exchange
  int ranks_per_node = 0;      // rows go to experts in two hops; 1: all tokens go to all of their ranks
  double capacity = 1e6;       // moe.capacity_factor
  bool drops_by_score = false;
  bool positions = false, balance = false;  // data.reset_position_ids, data.balance_batch
  int prefetch = 1;                         // units that are gathered ahead
};

[[nodiscard]] std::string name_of(const Layout& layout);
void PrintTo(const Layout& layout, std::ostream* out);  // GoogleTest's name for it

/// Ten steps in float64 of a tiny model whose vocabulary, heads and feed-forward width do not divide by most degrees.
[[nodiscard]] RunConfig config_of(const Layout& layout);
/// The config in float8, with sizes that are multiples of 16.
[[nodiscard]] RunConfig in_float8(RunConfig config);

/// Every (dp, tp, pp) with a product up to 8, with all that can be switched on it.
[[nodiscard]] std::vector<Layout> grid();

/// Every schedule, with more and fewer microbatches, mixed with the other axes.
[[nodiscard]] std::vector<Layout> schedule_rows();

/// Axes in other orders.
[[nodiscard]] std::vector<Layout> order_rows();

/// Context parallelism: every balancer, with documents and every other axis, and lengths that do not divide.
[[nodiscard]] std::vector<Layout> context_rows();
/// The same for the methods that exchange heads or gather keys.
[[nodiscard]] std::vector<Layout> context_method_rows();

/// Positions that restart, token lists that documents decide, and balanced batches.
[[nodiscard]] std::vector<Layout> document_rows();

/// Sliding windows, in some layers or all, with documents, context parallelism and the other axes.
[[nodiscard]] std::vector<Layout> window_rows();

/// Mixtures of experts, with every axis, level of sharding and kind of schedule.
[[nodiscard]] std::vector<Layout> expert_rows();

/// Experts over ranks together with every other axis, in one round or several.
[[nodiscard]] std::vector<Layout> expert_parallel_rows();

/// Both with experts that drop rows, by position or by score.
[[nodiscard]] std::vector<Layout> capacity_rows();

/// Layouts that were reported wrong in other systems, or that the grid does not come by.
[[nodiscard]] std::vector<Layout> rows();

}  // namespace echelon::testing
