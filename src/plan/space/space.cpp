#include "plan/space/space.h"

#include "plan/space/choices.h"

#include <algorithm>
#include <numeric>

namespace echelon {
namespace {

constexpr std::string_view replicate_key = "parallelism.data_parallel_replicate_degree",
                           shard_key = "parallelism.data_parallel_shard_degree", zero_key = "parallelism.zero_level",
                           reshard_key = "parallelism.reshard_after_forward", order_key = "parallelism.order";

/// The places that the default gives to `axes`, taken by them in every sequence; that of the default comes first.
std::vector<AxisOrder> permuted_orders(const std::vector<Axis>& axes) {
  const AxisOrder base;
  std::vector<std::size_t> places, sequence(axes.size());
  for (std::size_t i = 0; i < base.axes().size(); ++i)
    if (std::find(axes.begin(), axes.end(), base.axes()[i]) != axes.end()) places.push_back(i);
  std::iota(sequence.begin(), sequence.end(), std::size_t{0});
  std::vector<AxisOrder> all;
  do {
    std::vector<Axis> order(base.axes().begin(), base.axes().end());
    for (std::size_t i = 0; i < places.size(); ++i) order[places[i]] = axes[sequence[i]];
    all.emplace_back(order);
  } while (std::next_permutation(sequence.begin(), sequence.end()));
  return all;
}

/// Of the axes of more than one rank, as the default has them.
std::vector<AxisOrder> orders_of(const std::vector<Axis>& axes, const PlanRequest& request) {
  if (request.fixes(order_key)) {
    const AxisOrder& fixed = request.base.parallelism.order;
    const bool is_legal = std::all_of(axes.begin(), axes.end(), [&](Axis axis) { return fixed.names(axis); });
    return is_legal ? std::vector{fixed} : std::vector<AxisOrder>{};
  }
  return request.machine.host ? std::vector{AxisOrder()} : permuted_orders(axes);
}

}  // namespace

std::string degrees_text(const PlanShape& shape) {
  const std::string context = shape.cp > 1 ? fmt::format("cp {}, ", context_text(shape)) : "";
  const std::string features = shape.etp > 1 ? fmt::format(", etp {}", shape.etp) : "",
                    experts = (shape.ep > 1 ? fmt::format(", ep {}", shape.ep) : "") + features;
  return fmt::format("tp {}, {}pp {}, dp {}{}", shape.tp, context, shape.pp, shape.dp, experts);
}

std::string context_text(const PlanShape& shape) {
  const auto& [method, head_ranks] = shape.exchange;
  if (shape.cp == 1) return "1";
  const bool is_usual = shape.balancer == LoadBalancer::headtail || head_ranks == shape.cp;
  return fmt::format("{} {}{}{}", shape.cp, name_of(method),
                     method == ContextMethod::ulysses_ring ? fmt::format("/{}", head_ranks) : "",
                     is_usual ? "" : fmt::format(" {}", name_of(shape.balancer)));
}

bool fills_nodes(const MeshShape& mesh, std::int64_t ranks_per_node) {
  std::int64_t inner = 1;
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::dp_shard}) {  // as experts' ranks are counted (spec/groups.h)
    if (mesh.degree(axis) == 1) continue;
    if (mesh.stride(axis) != inner) return false;
    inner *= mesh.degree(axis);
    if (inner >= ranks_per_node) return inner % ranks_per_node == 0;
  }
  return false;
}

void PlanSpace::add_orders() {
  for (unsigned subset = 0; subset < 1U << num_axes; ++subset) {
    std::vector<Axis> axes;
    const AxisOrder all;
    for (const Axis axis : all.axes())
      if ((subset >> static_cast<unsigned>(axis) & 1U) != 0) axes.push_back(axis);
    if (!orders_.contains(axes)) orders_.emplace(axes, orders_of(axes, *request_));
  }
}

const PlanSpace::KnownData& PlanSpace::data_of(const PlanShape& shape) const {
  const auto [known, is_new] = data_.try_emplace({shape.tp, shape.pp, shape.dp, shape.cp, shape.ep, shape.etp,
                                                  shape.divides_experts_as_dense ? 1 : 0, shape.ranks_per_node});
  KnownData& data = known->second;
  if (!is_new) return data;
  data.all = made_data_layouts(shape);
  for (const PlanData& each : data.all) data.num_orders += std::ssize(orders(shape, each));
  return data;
}

std::vector<PlanData> PlanSpace::made_data_layouts(const PlanShape& shape) const {
  const ParallelConfig& fixed = request_->base.parallelism;
  std::vector<PlanData> all;
  const auto add = [&](const PlanData& each) {
    if (!fits(replicate_key, each.replicate, fixed.data_parallel_replicate_degree) ||
        !fits(shard_key, each.shard, fixed.data_parallel_shard_degree) ||
        !fits(zero_key, each.zero_level, fixed.zero_level) ||
        (request_->fixes(reshard_key) && each.reshard != fixed.reshard_after_forward))
      return;
    if (each.shard % shards_of_experts(shape) == 0 && !orders(shape, each).empty()) all.push_back(each);
  };
  for (const std::int64_t shard : divisors(shape.dp)) {
    const std::int64_t replicate = shape.dp / shard;
    // Where nothing is sharded the level has no effect: it keeps what the user fixed, or its default.
    if (num_shards(shape, {.shard = shard}) == 1) {
      add({replicate, 1, request_->fixes(zero_key) && fixed.zero_level < 3 ? fixed.zero_level : 1});
      continue;
    }
    if (shard == 1 && request_->fixes(zero_key) && fixed.zero_level == 0) add({replicate, shard, 0});
    for (const std::int64_t level : {1, 2}) add({replicate, shard, level});
    for (const auto reshard : {ReshardAfterForward::never, ReshardAfterForward::microbatch, ReshardAfterForward::step})
      add({replicate, shard, 3, reshard, fixed.prefetch_depth});
  }
  return all;
}

const std::vector<AxisOrder>& PlanSpace::orders(const PlanShape& shape, const PlanData& data) const {
  const MeshShape mesh = mesh_of(shape, data, {});
  std::vector<Axis> axes;
  std::array<int, num_axes> degrees{};
  const AxisOrder all;
  for (const Axis axis : all.axes()) {
    degrees[static_cast<std::size_t>(axis)] = mesh.degree(axis);
    if (mesh.degree(axis) > 1) axes.push_back(axis);
  }
  const std::vector<AxisOrder>& of_axes = orders_.at(axes);
  if (shape.ranks_per_node == 0) return of_axes;
  const auto [known, is_new] = orders_by_node_.try_emplace({degrees, shape.ranks_per_node}, of_axes);
  if (is_new)
    std::erase_if(known->second, [&](const AxisOrder& order) {
      return !fills_nodes(mesh_of(shape, data, order), shape.ranks_per_node);
    });
  return known->second;
}

MeshShape PlanSpace::mesh_of(const PlanShape& shape, const PlanData& data, const AxisOrder& order) const {
  AxisDegrees degrees;
  const auto set = [&](Axis axis, std::int64_t degree) { degrees[axis] = static_cast<int>(degree); };
  set(Axis::dp_replicate, data.replicate);
  set(Axis::pp, shape.pp);
  set(Axis::dp_shard, data.shard);
  set(Axis::cp, shape.cp);
  set(Axis::tp, shape.tp);
  return MeshShape(degrees, order);
}

std::int64_t PlanSpace::num_configurations() const {
  std::int64_t sum = 0;
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> known;  // by what pipelines depend on
  for (const PlanShape& shape : shapes_) {
    const auto [entry, is_new] = known.try_emplace({shape.pp, shape.num_microbatches}, 0);
    if (is_new)
      for (const PlanPipeline& pipeline : pipelines(shape)) entry->second += std::ssize(recomputes(pipeline));
    sum += entry->second * data_of(shape).num_orders;
  }
  return sum;
}

void PlanSpace::for_each(const std::function<void(const PlanChoice&)>& visit) const {
  for (const PlanShape& shape : shapes_) {
    const std::vector<PlanData>& data = data_layouts(shape);
    for (const PlanPipeline& pipeline : pipelines(shape))
      for (const PlanRecompute& recompute : recomputes(pipeline))
        for (const PlanData& each : data)
          for (const AxisOrder& order : orders(shape, each)) visit({shape, pipeline, recompute, each, order});
  }
}

RunConfig PlanSpace::config_of(const PlanChoice& choice) const { return echelon::config_of(*request_, choice); }

}  // namespace echelon
