#include "nn/mixture/expert_layers.h"

#include "nn/sharding.h"
#include "spec/groups.h"

#include <cmath>

namespace echelon {
namespace {

Param stacked(const LayerOptions& options, const std::string& name, const Sizes& sizes, int dim_of_features) {
  Param param;
  param.name = name;
  param.init_std = options.model.initializer_range;
  if (options.divides_expert_features) {
    const Slice features = even_slice(sizes[dim_of_features], options.tp, options.tp_rank);
    param.slice = TensorSlice(sizes, dim_of_features, {features.first, features.count});
    return param;
  }
  const std::int64_t count = sizes[0] / options.ep;
  const Range experts = {options.ep_rank * count, count};
  if (options.etp > 1) {
    const Slice features = even_slice(sizes[dim_of_features], options.etp, options.etp_rank);
    param.slice = TensorSlice(sizes, experts, dim_of_features, {features.first, features.count});
  } else {
    param.slice = options.ep > 1 ? TensorSlice(sizes, 0, experts) : TensorSlice(sizes);
  }
  // Tensor-parallel ranks with the same experts have tokens of their own.
  const int num_ranks = options.num_expert_ranks();
  if (num_ranks > 1 || options.tp > 1) param.groups.shard = expert_holders_group(num_ranks);
  return param;
}

/// That of an expert is smaller for the same reason as that of an MLP (row_parallel).
Param down_projection(const LayerOptions& options, const std::string& name) {
  const MixtureSpec& spec = options.model.mixture;
  Param param = stacked(options, name, {spec.num_experts, options.model.hidden_size, spec.moe_intermediate_size}, 2);
  param.init_std /= std::sqrt(2.0 * static_cast<double>(options.model.num_hidden_layers));
  return param;
}

void add_weight_gradient(Ops& ops, Param& w, Tensor dy, Tensor x, const ExpertRows& rows) {
  ops.grouped_matmul_backward_weight(
      {.dy = dy, .x = x, .offsets = rows.offsets, .dw = w.grad, .expected_rows = rows.expected});
}

Sizes first_sizes(const LayerOptions& options) {
  const MixtureSpec& spec = options.model.mixture;
  return {spec.num_experts, spec.moe_intermediate_size, options.model.hidden_size};
}

}  // namespace

ExpertLayers::ExpertLayers(const LayerOptions& options, const std::string& name)
    : gate_(stacked(options, name + ".gate_proj.weight", first_sizes(options), 1)),
      up_(stacked(options, name + ".up_proj.weight", first_sizes(options), 1)),
      down_(down_projection(options, name + ".down_proj.weight")) {}

void ExpertLayers::inner_products(Ops& ops, Tensor x_rows, const ExpertRows& rows, const Inner& inner) const {
  if (rows.count == 0) return;
  const Tensor x = x_rows.rows(0, rows.count);
  const auto [gate, up] = inner.first(rows.count);
  ops.grouped_matmul({.a = x,
                      .w = gate_.value,
                      .offsets = rows.offsets,
                      .c = gate,
                      .transpose_w = true,
                      .expected_rows = rows.expected});
  ops.grouped_matmul(
      {.a = x, .w = up_.value, .offsets = rows.offsets, .c = up, .transpose_w = true, .expected_rows = rows.expected});
}

void ExpertLayers::outputs(Context& context, const Inner& inner, const ExpertRows& rows, Tensor y_rows) const {
  const Tensor all_activated = context.workspace.take(inner.gate.dtype, inner.gate.sizes);
  if (rows.count == 0) return;
  Ops& ops = context.ops;
  const auto [gate, up] = inner.first(rows.count);
  const Tensor activated = all_activated.rows(0, rows.count), y = y_rows.rows(0, rows.count);
  ops.swiglu({.gate = gate, .up = up, .y = activated});
  ops.weight_rows({.x = activated, .slots = rows.slots, .weights = rows.weights, .y = activated});
  ops.grouped_matmul({.a = activated,
                      .w = down_.value,
                      .offsets = rows.offsets,
                      .c = y,
                      .transpose_w = true,
                      .expected_rows = rows.expected});
}

void ExpertLayers::row_gradients(Context& context, const Inner& inner, const ExpertRows& rows,
                                 const RowGradients& of) const {
  const Stack::Scope scope(context.workspace);
  const Tensor all_dactivated = context.workspace.take(inner.gate.dtype, inner.gate.sizes);
  if (rows.count == 0) return;
  Ops& ops = context.ops;
  const auto [gate, up] = inner.first(rows.count);
  const Tensor dactivated = all_dactivated.rows(0, rows.count), activated = of.activated.rows(0, rows.count);
  ops.grouped_matmul({.a = of.dy.rows(0, rows.count),
                      .w = down_.value,
                      .offsets = rows.offsets,
                      .c = dactivated,
                      .expected_rows = rows.expected});
  ops.swiglu({.gate = gate, .up = up, .y = activated});
  ops.weight_rows_backward({.dy = dactivated,
                            .x = activated,
                            .slots = rows.slots,
                            .weights = rows.weights,
                            .dx = dactivated,
                            .dweights = of.dweights,
                            .y = activated});
  ops.swiglu_backward({.dy = dactivated, .gate = gate, .up = up, .dgate = gate, .dup = up});
}

void ExpertLayers::input_gradients(Ops& ops, const Inner& dinner, const ExpertRows& rows, Tensor dx_rows) const {
  if (rows.count == 0) return;
  const auto [gate, up] = dinner.first(rows.count);
  const Tensor dx = dx_rows.rows(0, rows.count);
  ops.grouped_matmul({.a = gate, .w = gate_.value, .offsets = rows.offsets, .c = dx, .expected_rows = rows.expected});
  ops.grouped_matmul(
      {.a = up, .w = up_.value, .offsets = rows.offsets, .c = dx, .accumulates = true, .expected_rows = rows.expected});
}

void ExpertLayers::down_weight_gradient(Ops& ops, const ExpertRows& rows, const WeightInputs& of) {
  if (rows.count > 0)
    add_weight_gradient(ops, down_, of.dy.rows(0, rows.count), of.activated.rows(0, rows.count), rows);
}

void ExpertLayers::inner_weight_gradients(Ops& ops, const Inner& dinner, const ExpertRows& rows, Tensor x_rows) {
  if (rows.count == 0) return;
  const auto [gate, up] = dinner.first(rows.count);
  const Tensor x = x_rows.rows(0, rows.count);
  add_weight_gradient(ops, gate_, gate, x, rows);
  add_weight_gradient(ops, up_, up, x, rows);
}

}  // namespace echelon
