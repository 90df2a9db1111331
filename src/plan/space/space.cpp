#include "plan/space/space.h"

#include "base/error.h"
#include "nn/head_split.h"
#include "spec/config/pipeline.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace echelon {
namespace {

constexpr std::string_view replicate_key = "parallelism.data_parallel_replicate_degree",
                           shard_key = "parallelism.data_parallel_shard_degree", zero_key = "parallelism.zero_level",
                           reshard_key = "parallelism.reshard_after_forward",
                           tensor_key = "parallelism.tensor_parallel_degree",
                           sequence_key = "parallelism.sequence_parallel",
                           context_key = "parallelism.context_parallel_degree",
                           exchange_key = "parallelism.context_parallel_method",
                           head_ranks_key = "parallelism.context_parallel_ulysses_degree",
                           sizes_key = "parallelism.hierarchical_context_parallel_sizes",
                           pipeline_key = "parallelism.pipeline_parallel_degree",
                           micro_batch_key = "training.micro_batch_size", order_key = "parallelism.order";

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> low, high;
  for (std::int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    low.push_back(d);
    if (d * d != number) high.push_back(number / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

bool is_legal(const RunConfig& config) {
  try {
    validate(config);
    const int tp = static_cast<int>(config.parallelism.tensor_parallel_degree);
    validate_tensor_parallel(config.model, tp);
    if (const int u = key_exchange(config.parallelism).head_ranks; u > 1)
      validate_head_exchange(config.model, tp, {.key = exchange_key, .num_ranks = u});
    return true;
  } catch (const Error&) {
    return false;
  }
}

RunConfig with_shape(RunConfig config, const PlanShape& shape) {
  config.parallelism.tensor_parallel_degree = shape.tp;
  config.parallelism.sequence_parallel = shape.sequence_parallel;
  config.parallelism.pipeline_parallel_degree = shape.pp;
  config.parallelism.context_parallel_degree = shape.cp;
  config.parallelism.context_parallel_method = shape.exchange.method;
  config.parallelism.context_parallel_ulysses_degree =
      shape.exchange.method == ContextMethod::ulysses_ring ? shape.exchange.head_ranks : 0;
  config.parallelism.hierarchical_context_parallel_sizes = {};
  config.parallelism.data_parallel_replicate_degree = shape.dp;
  config.parallelism.data_parallel_shard_degree = 1;
  config.training.micro_batch_size = shape.micro_batch_size;
  return config;
}

/// All that is chosen, at its simplest.
RunConfig without_choices(RunConfig config) {
  config.training.micro_batch_size = 1;
  config.training.recompute = {};
  config.training.recompute_method = RecomputeMethod::uniform;
  config.training.recompute_num_layers = 1;
  config.training.mlp_chunk_tokens = 0;  // contradicts recompute = none
  const ParallelConfig defaults;
  config.parallelism.zero_level = defaults.zero_level;
  config.parallelism.reshard_after_forward = defaults.reshard_after_forward;
  config.parallelism.pipeline_parallel_schedule = defaults.pipeline_parallel_schedule;
  config.parallelism.virtual_stages = defaults.virtual_stages;
  config.parallelism.pipeline_parallel_layout = {};
  config.parallelism.order = {};
  return config;
}

RunConfig with_pipeline(RunConfig config, const PlanPipeline& pipeline) {
  config.parallelism.pipeline_parallel_schedule = pipeline.schedule;
  config.parallelism.virtual_stages = pipeline.num_virtual;
  config.parallelism.pipeline_parallel_layout = pipeline.layout;
  return config;
}

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

void require_divisor(std::string_view key, std::int64_t degree, const PlanRequest& request) {
  std::int64_t closest = 1;
  for (const std::int64_t divisor : divisors(request.num_devices))
    if (std::abs(divisor - degree) < std::abs(closest - degree)) closest = divisor;
  require(!request.fixes(key) || request.num_devices % degree == 0, "{} = {} does not divide --gpus={} (use {})", key,
          degree, request.num_devices, closest);
}

}  // namespace

std::string degrees_text(const PlanShape& shape) {
  const std::string context = shape.cp > 1 ? fmt::format("cp {}, ", context_text(shape)) : "";
  return fmt::format("tp {}, {}pp {}, dp {}", shape.tp, context, shape.pp, shape.dp);
}

std::string context_text(const PlanShape& shape) {
  const auto& [method, head_ranks] = shape.exchange;
  if (shape.cp == 1) return "1";
  return fmt::format("{} {}{}", shape.cp, name_of(method),
                     method == ContextMethod::ulysses_ring ? fmt::format("/{}", head_ranks) : "");
}

PlanSpace::PlanSpace(const PlanRequest& request) : request_(&request) {
  add_orders();
  for (const std::int64_t tp : divisors(request.num_devices)) {
    if (!fits(tensor_key, tp, request.base.parallelism.tensor_parallel_degree)) continue;
    for (const std::int64_t pp : divisors(request.num_devices / tp)) {
      if (!fits(pipeline_key, pp, request.base.parallelism.pipeline_parallel_degree)) continue;
      for (const std::int64_t cp : divisors(request.num_devices / (tp * pp)))
        if (is_searched(cp)) add_shapes(tp, pp, cp);
    }
  }
  if (!shapes_.empty()) return;
  const ParallelConfig& fixed = request.base.parallelism;
  require_divisor(tensor_key, fixed.tensor_parallel_degree, request);
  require_divisor(pipeline_key, fixed.pipeline_parallel_degree, request);
  require_divisor(context_key, fixed.context_parallel_degree, request);
  validate(request.base);  // says what contradicts what, if it is the fixed keys alone
  throw Error(
      fmt::format("no layout of {} on --gpus={} has training.global_batch_size = {} and the keys that are fixed ({}); "
                  "leave some of them open",
                  name_of(request.base.model.family), request.num_devices, request.base.training.global_batch_size,
                  request.fixed.empty() ? "none" : fmt::format("{}", fmt::join(request.fixed, ", "))));
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

bool PlanSpace::is_searched(std::int64_t cp) const {
  if (request_->fixes(context_key)) return cp == request_->base.parallelism.context_parallel_degree;
  return cp == 1 || request_->base.training.seq_len >= cp * least_context_tokens;
}

/// Of which the fixed keys say no other. Legal ones among others.
std::vector<KeyExchange> PlanSpace::exchanges(std::int64_t tp, std::int64_t cp) const {
  const ParallelConfig& fixed = request_->base.parallelism;
  const bool fixes_degree = request_->fixes(head_ranks_key) || request_->fixes(sizes_key);
  std::vector<KeyExchange> all;
  const auto add = [&](ContextMethod method, std::int64_t head_ranks) {
    if (request_->fixes(exchange_key) && method != fixed.context_parallel_method) return;
    all.push_back({method, static_cast<int>(head_ranks)});
  };
  if (!fixes_degree) add(ContextMethod::ring, 1);
  if (cp == 1) return all;
  if (!fixes_degree) add(ContextMethod::all_gather, 1);
  if (!fixes_degree) add(ContextMethod::ulysses, cp);
  for (const std::int64_t u : divisors(cp)) {
    const bool is_wanted = !fixes_degree || u == fixed.context_parallel_ulysses_degree ||
                           fixed.hierarchical_context_parallel_sizes == std::vector{u, cp / u};
    const bool has_ring = u > 1 && u < cp;  // else it is a ring or ulysses by another name
    if (is_wanted && (has_ring || fixes_degree) && u <= request_->base.model.num_attention_heads / tp)
      add(ContextMethod::ulysses_ring, u);
  }
  return all;
}

void PlanSpace::add_shapes(std::int64_t tp, std::int64_t pp, std::int64_t cp) {
  const RunConfig plain = without_choices(request_->base);
  const ParallelConfig& fixed = request_->base.parallelism;
  const std::int64_t dp = request_->num_devices / (tp * pp * cp), batch = plain.training.global_batch_size;
  if (batch % dp != 0) return;
  for (const std::int64_t micro_batch : divisors(batch / dp)) {
    if (!fits(micro_batch_key, micro_batch, request_->base.training.micro_batch_size)) continue;
    for (const bool sequence_parallel : {false, true}) {
      if (request_->fixes(sequence_key) ? sequence_parallel != fixed.sequence_parallel : sequence_parallel && tp == 1)
        continue;
      for (const KeyExchange& exchange : exchanges(tp, cp)) {
        const PlanShape shape = {tp, sequence_parallel, pp, dp, micro_batch, batch / dp / micro_batch, cp, exchange};
        if (is_legal(with_shape(plain, shape)) && !pipelines(shape).empty() && !data_layouts(shape).empty())
          shapes_.push_back(shape);
      }
    }
  }
}

std::vector<PlanData> PlanSpace::data_layouts(const PlanShape& shape) const {
  const ParallelConfig& fixed = request_->base.parallelism;
  std::vector<PlanData> all;
  const auto add = [&](const PlanData& each) {
    if (!fits(replicate_key, each.replicate, fixed.data_parallel_replicate_degree) ||
        !fits(shard_key, each.shard, fixed.data_parallel_shard_degree) ||
        !fits(zero_key, each.zero_level, fixed.zero_level) ||
        (request_->fixes(reshard_key) && each.reshard != fixed.reshard_after_forward))
      return;
    if (!orders(shape, each).empty()) all.push_back(each);
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
      add({replicate, shard, 3, reshard});
  }
  return all;
}

const std::vector<AxisOrder>& PlanSpace::orders(const PlanShape& shape, const PlanData& data) const {
  const MeshShape mesh = mesh_of(shape, data, {});
  std::vector<Axis> axes;
  const AxisOrder all;
  for (const Axis axis : all.axes())
    if (mesh.degree(axis) > 1) axes.push_back(axis);
  return orders_.at(axes);
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
  for (const PlanShape& shape : shapes_) {
    std::int64_t of_shape = 0;
    for (const PlanPipeline& pipeline : pipelines(shape))
      of_shape += static_cast<std::int64_t>(recomputes(pipeline).size());
    for (const PlanData& data : data_layouts(shape))
      sum += of_shape * static_cast<std::int64_t>(orders(shape, data).size());
  }
  return sum;
}

void PlanSpace::for_each(const std::function<void(const PlanChoice&)>& visit) const {
  for (const PlanShape& shape : shapes_) {
    const std::vector<PlanData> data = data_layouts(shape);
    for (const PlanPipeline& pipeline : pipelines(shape))
      for (const PlanRecompute& recompute : recomputes(pipeline))
        for (const PlanData& each : data)
          for (const AxisOrder& order : orders(shape, each)) visit({shape, pipeline, recompute, each, order});
  }
}

RunConfig PlanSpace::config_of(const PlanChoice& choice) const {
  RunConfig config = with_pipeline(with_shape(without_choices(request_->base), choice.shape), choice.pipeline);
  config.training.recompute = choice.recompute.operations;
  config.training.mlp_chunk_tokens = request_->base.training.mlp_chunk_tokens;
  if (choice.recompute.num_blocks > 0) {
    config.training.recompute_method = RecomputeMethod::block;
    config.training.recompute_num_layers = choice.recompute.num_blocks;
  }
  config.parallelism.data_parallel_replicate_degree = choice.data.replicate;
  config.parallelism.data_parallel_shard_degree = choice.data.shard;
  config.parallelism.zero_level = choice.data.zero_level;
  config.parallelism.reshard_after_forward = choice.data.reshard;
  config.parallelism.order = choice.order;
  return config;
}

}  // namespace echelon
