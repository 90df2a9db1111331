// All layouts of a model on so many devices that `train` would run, as a product of five choices, so that they can be
// counted without being listed:
//
//   Shape        tensor (and sequence), pipeline, data and context degrees with the method of context parallelism, how
//                experts are divided and their rows exchanged, sequences per microbatch.
//   Pipeline     of a shape: schedule, virtual stages, layers per stage.
//   Recompute    of a pipeline: which operations of how many blocks of each stage are recomputed.
//   Data         of a shape: replicas and shards, ZeRO's level, when gathered parameters are released.
//   Order        of a shape with its data axes: which axis is innermost.
#pragma once

#include "plan/space/request.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <vector>

namespace echelon {

struct PlanShape {
  std::int64_t tp = 1;
  bool sequence_parallel = false;
  std::int64_t pp = 1, dp = 1;
  std::int64_t micro_batch_size = 1, num_microbatches = 1;
  std::int64_t cp = 1;
  KeyExchange exchange = {};
  // Of a mixture: into how many parts ranks divide the experts of a layer, and how many ranks, with rows of their own,
  // divide the features of each. Or tensor-parallel ranks divide the features of all, as of a dense branch.
  std::int64_t ep = 1, etp = 1;
  bool divides_experts_as_dense = true;
  // Of experts over ranks: those that share a node, where rows go to other nodes in two hops (0: directly; 1: all
  // tokens go to all of these ranks); and moe.dispatch_bound.
  std::int64_t ranks_per_node = 0;
  double dispatch_bound = MoeConfig().dispatch_bound;
  LoadBalancer balancer = LoadBalancer::headtail;  // of context parallelism
  auto operator<=>(const PlanShape&) const = default;
};

[[nodiscard]] ExpertDispatch dispatch_of(const PlanShape& shape);

/// Without a fixed degree, ranks of context parallelism hold no fewer tokens of a sequence. With fewer of them it is
/// another way to make microbatches smaller, and a search takes several times the work to weigh it against the others.
inline constexpr std::int64_t least_context_tokens = 8192;

/// Whether the innermost ranks of the mesh, so many to a node, have experts together and are neighbours among those
/// that do. Then a group of more of them fills whole nodes.
[[nodiscard]] bool fills_nodes(const MeshShape& mesh, std::int64_t ranks_per_node);

struct PlanPipeline {
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  std::int64_t num_virtual = 1;
  PipelineLayout layout = {};
  std::int64_t most_layers = 0;  // decoder layers of the largest stage
  bool operator==(const PlanPipeline&) const = default;
};

/// Sets of operations of which each may be recomputed.
[[nodiscard]] std::vector<BlockOperations> recomputed_sets(const ModelSpec& model);

struct PlanRecompute {
  BlockOperations operations = {};
  std::int64_t num_blocks = 0;  // of each stage; 0: all
  bool operator==(const PlanRecompute&) const = default;
};

struct PlanData {
  std::int64_t replicate = 1, shard = 1;
  std::int64_t zero_level = 1;
  ReshardAfterForward reshard = ReshardAfterForward::microbatch;
  std::int64_t prefetch_depth = 1;  // not searched: as the user fixed it
  auto operator<=>(const PlanData&) const = default;
};

/// Ranks that have the experts of a layer together, and exchange rows.
[[nodiscard]] constexpr std::int64_t num_expert_ranks(const PlanShape& shape) { return shape.ep * shape.etp; }
/// Ranks over which rows go in a second hop; 0: rows go directly; 1: all tokens go to all ranks (spec/config).
[[nodiscard]] constexpr std::int64_t inner_expert_ranks(const PlanShape& shape) {
  return shape.ranks_per_node == 1 ? 1 : std::max(shape.etp, shape.ranks_per_node);
}
/// Ranks with the same experts and other tokens: over them experts are sharded, and the gradients of experts are
/// summed. 1 where experts are like dense parameters.
[[nodiscard]] constexpr std::int64_t num_expert_holders(const PlanShape& shape, const PlanData& data) {
  const bool are_as_dense = shape.divides_experts_as_dense || num_expert_ranks(shape) * shape.tp == 1;
  return are_as_dense ? 1 : data.shard * shape.cp * shape.tp / num_expert_ranks(shape);
}
/// Ranks over which ZeRO shards, and ranks over which gradients are summed: those of context parallelism are among
/// both.
[[nodiscard]] constexpr std::int64_t num_shards(const PlanShape& shape, const PlanData& data) {
  return std::max(data.shard * shape.cp, num_expert_holders(shape, data));
}
[[nodiscard]] constexpr std::int64_t num_gradient_ranks(const PlanShape& shape) { return shape.dp * shape.cp; }
[[nodiscard]] constexpr bool reduces_gradients(const PlanShape& shape, const PlanData& data) {
  return num_gradient_ranks(shape) > 1 || num_expert_holders(shape, data) > 1;
}
/// The least degree of the shard axis with which all ranks are expert groups; its multiples do, too.
[[nodiscard]] constexpr std::int64_t shards_of_experts(const PlanShape& shape) {
  return num_expert_ranks(shape) / std::gcd(num_expert_ranks(shape), shape.tp * shape.cp);
}

struct PlanChoice {
  PlanShape shape = {};
  PlanPipeline pipeline = {};
  PlanRecompute recompute = {};
  PlanData data = {};
  AxisOrder order = {};
  bool operator==(const PlanChoice&) const = default;
};

/// "tp 8, pp 4, dp 2", with the context degree and its method where it is above 1.
[[nodiscard]] std::string degrees_text(const PlanShape& shape);
/// "8 ring", "8 ulysses_ring/4" where 4 ranks exchange heads, "8 ring packed" with another balancer than headtail; "1".
[[nodiscard]] std::string context_text(const PlanShape& shape);

class PlanSpace {
 public:
  /// Throws Error if no layout is legal (no_layout.h).
  explicit PlanSpace(const PlanRequest& request);
  [[nodiscard]] static bool has_layouts(const PlanRequest& request);

  [[nodiscard]] const std::vector<PlanShape>& shapes() const { return shapes_; }
  [[nodiscard]] const std::vector<PlanPipeline>& pipelines(const PlanShape& shape) const;
  /// From the fastest to the one that keeps least, for each set of operations.
  [[nodiscard]] const std::vector<PlanRecompute>& recomputes(const PlanPipeline& pipeline) const;
  [[nodiscard]] const std::vector<PlanData>& data_layouts(const PlanShape& shape) const { return data_of(shape).all; }
  /// Those that differ as meshes: axes of one rank are where the default has them. The default comes first. On a host
  /// ranks are threads without a place, and the default represents all. In two hops rows go between whole nodes.
  [[nodiscard]] const std::vector<AxisOrder>& orders(const PlanShape& shape, const PlanData& data) const;
  [[nodiscard]] MeshShape mesh_of(const PlanShape& shape, const PlanData& data, const AxisOrder& order) const;

  /// The stages of a pipeline of `num_stages`.
  [[nodiscard]] const std::vector<StageLayers>& stages_of(std::int64_t num_stages, const PipelineLayout& layout) const;

  [[nodiscard]] std::int64_t num_configurations() const;
  void for_each(const std::function<void(const PlanChoice&)>& visit) const;
  /// What `train` is given.
  [[nodiscard]] RunConfig config_of(const PlanChoice& choice) const;

 private:
  /// May have no shape.
  PlanSpace(const PlanRequest* request, bool one_is_enough);
  void add_orders();
  /// `config`: without choices, on which each shape is tried.
  void add_shapes(std::int64_t tp, std::int64_t pp, std::int64_t cp, RunConfig& config);
  /// The shape with every way to divide experts and to exchange their rows.
  void add_divided(const PlanShape& shape, RunConfig& config);
  [[nodiscard]] bool is_searched(std::int64_t cp) const;
  [[nodiscard]] std::vector<KeyExchange> exchanges(std::int64_t tp, std::int64_t cp) const;
  [[nodiscard]] std::vector<LoadBalancer> balancers(std::int64_t cp, const KeyExchange& exchange) const;
  /// The shape with every way to divide experts; legal ones among others.
  [[nodiscard]] std::vector<PlanShape> with_experts(const PlanShape& shape) const;
  /// The legal shape with every way to exchange rows.
  [[nodiscard]] std::vector<PlanShape> with_row_exchanges(const PlanShape& shape) const;
  struct KnownData {
    std::vector<PlanData> all;
    std::int64_t num_orders = 0;  // of all
  };
  [[nodiscard]] const KnownData& data_of(const PlanShape& shape) const;
  [[nodiscard]] std::vector<PlanPipeline> made_pipelines(const PlanShape& shape) const;
  [[nodiscard]] std::vector<PlanData> made_data_layouts(const PlanShape& shape) const;
  [[nodiscard]] bool fits(std::string_view key, std::int64_t value, std::int64_t wanted) const {
    return !request_->fixes(key) || value == wanted;
  }

  struct Split {
    PipelineLayout layout;
    std::vector<StageLayers> stages;
    std::int64_t most_layers = 0;
  };
  [[nodiscard]] const std::vector<Split>& splits(std::int64_t num_stages) const;

  const PlanRequest* request_;
  std::vector<PlanShape> shapes_;
  std::map<std::vector<Axis>, std::vector<AxisOrder>> orders_;  // by the axes of more than one rank
  // Of them those that fill nodes: by degrees in the order of Axis, and the ranks of a node.
  mutable std::map<std::pair<std::array<int, num_axes>, std::int64_t>, std::vector<AxisOrder>> orders_by_node_;
  // By what of a shape they depend on: pp and microbatches; degrees and the ranks of a node.
  mutable std::map<std::pair<std::int64_t, std::int64_t>, std::vector<PlanPipeline>> pipelines_;
  mutable std::map<std::array<std::int64_t, 8>, KnownData> data_;
  mutable std::map<std::int64_t, std::vector<Split>> splits_;  // by the number of stages: asked for again and again
  mutable std::map<std::int64_t, std::vector<PlanRecompute>> recomputes_;  // by the layers of the largest stage
};

}  // namespace echelon
