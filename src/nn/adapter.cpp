#include "nn/adapter.h"

#include "nn/linear.h"
#include "spec/groups.h"
#include "spec/lora/linear_layers.h"

#include <cmath>
#include <utility>

namespace echelon {
namespace {

/// Whole on every rank, with a part of its gradient on each.
void share(const LayerOptions& options, Param& param) {
  if (options.tp > 1) param.groups.partial = param.copies = tp_group;
  param.is_first_copy = options.tp_rank == 0;
}

Param matrix(const std::string& name, const TensorSlice& slice) {
  Param param;
  param.name = name;
  param.slice = slice;
  param.is_overwritten_by_first_matmul = true;
  return param;
}

/// The same rows or copies as the weight.
void share_as(const Param& weight, Param& param) {
  param.groups = weight.groups;
  param.copies = weight.copies;
  param.is_first_copy = weight.is_first_copy;
}

Param make_a(const LayerOptions& options, const std::string& name, const Param& weight, ShardedSide side) {
  const std::int64_t in = weight.global_sizes()[1];
  const Sizes sizes = {options.lora.rank, in};
  Param a = matrix(name + ".lora_A.weight",
                   side == ShardedSide::inputs ? TensorSlice(sizes, 1, weight.slice.entries(1)) : TensorSlice(sizes));
  a.init_bound = 1 / std::sqrt(static_cast<double>(in));
  if (side == ShardedSide::outputs) share(options, a);
  if (side == ShardedSide::none) share_as(weight, a);
  return a;
}

Param make_b(const LayerOptions& options, const std::string& name, const Param& weight, ShardedSide side) {
  const Sizes sizes = {weight.global_sizes()[0], options.lora.rank};
  Param b = matrix(name + ".lora_B.weight",
                   side == ShardedSide::outputs ? TensorSlice(sizes, 0, weight.slice.entries(0)) : TensorSlice(sizes));
  if (side == ShardedSide::inputs)
    share(options, b);
  else
    share_as(weight, b);  // ranks that share a kv head have the same rows of it
  return b;
}

}  // namespace

std::vector<Param*> Adapter::params() {
  if (matrices_.owns_a) return {matrices_.a.get(), &matrices_.b};
  return {&matrices_.b};
}

void Adapter::add_product(Context& context, Tensor x, Tensor y) const {
  const Stack::Scope scope(context.workspace);
  context.ops.matmul(
      {.a = hidden(context, x), .b = matrices_.b.value, .c = y, .transpose_b = true, .accumulates = true});
}

void Adapter::add_input_gradient(Context& context, Tensor dy, Tensor dx) const {
  const Stack::Scope scope(context.workspace);
  context.ops.matmul({.a = hidden_gradient(context, dy), .b = matrices_.a->value, .c = dx, .accumulates = true});
}

void Adapter::weight_backward(Context& context, Tensor dy, Tensor x) {
  const Stack::Scope scope(context.workspace);
  context.ops.matmul(weight_gradient(matrices_.b, dy, hidden(context, x)));
  context.ops.matmul(weight_gradient(*matrices_.a, hidden_gradient(context, dy), x));
}

Tensor Adapter::hidden(Context& context, Tensor x) const {
  const Tensor u = context.workspace.take(x.dtype, {x.size(0), matrices_.a->local_sizes()[0]});
  context.ops.matmul({.a = x, .b = matrices_.a->value, .c = u, .transpose_b = true});
  context.ops.scale(u, scale_);
  return u;
}

Tensor Adapter::hidden_gradient(Context& context, Tensor dy) const {
  const Tensor du = context.workspace.take(dy.dtype, {dy.size(0), matrices_.b.local_sizes()[1]});
  context.ops.matmul({.a = dy, .b = matrices_.b.value, .c = du});
  context.ops.scale(du, scale_);
  return du;
}

void add_adapters(const LayerOptions& options, std::span<Linear* const> layers, ShardedSide side) {
  std::shared_ptr<Param> a;
  std::string module;
  for (Linear* const linear : layers) {
    const Param& weight = linear->weight();
    const std::string name = weight.name.substr(0, weight.name.rfind('.'));
    if (!has_adapter(options.lora, options.model, layer_of(name))) continue;
    std::string own_module(module_of(options.model, layer_of(name)));
    const bool owns_a = own_module != module;
    module = std::move(own_module);
    if (owns_a) a = std::make_shared<Param>(make_a(options, name, weight, side));
    linear->set_adapter({options, {a, make_b(options, name, weight, side), owns_a}});
  }
}

void add_adapters(const LayerOptions& options, std::span<Linear> layers, ShardedSide side) {
  std::vector<Linear*> all;
  for (Linear& linear : layers) all.push_back(&linear);
  add_adapters(options, all, side);
}

}  // namespace echelon
