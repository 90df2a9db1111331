#include "nn/mlp.h"

#include "nn/tensor_parallel.h"

namespace echelon {
namespace {

enum Kept : int { kept_x, kept_activated, kept_dy, kept_inner_0, kept_inner_1 };

int num_inner(const LayerOptions& options) { return options.model.mlp == MlpKind::swiglu ? 2 : 1; }

Linear inner_product(const LayerOptions& options, const std::string& name, Slice features) {
  const ModelSpec& model = options.model;
  Linear linear(options,
                row_slice_of_matrix(options, name + ".weight", {model.intermediate_size, model.hidden_size}, features));
  if (model.output_bias && model.mlp != MlpKind::gelu)
    linear.set_bias(slice_of_bias(name + ".bias", model.intermediate_size, features));
  return linear;
}

std::vector<Linear> inner_products(const LayerOptions& options, const std::string& name, Slice features) {
  switch (options.model.mlp) {
    case MlpKind::swiglu:
      return {inner_product(options, name + ".gate_proj", features),
              inner_product(options, name + ".up_proj", features)};
    case MlpKind::gelu: return {inner_product(options, name + ".up_proj", features)};
  }
  return {};
}

}  // namespace

Mlp::Mlp(const LayerOptions& options, const std::string& name)
    : options_(options),
      features_(even_slice(options.model.intermediate_size, options.tp, options.tp_rank)),
      inner_(options, inner_products(options, name, features_)),
      down_(row_parallel(options, name + ".down_proj", options.model.intermediate_size, features_)) {
  if (options.model.mlp == MlpKind::gelu && options.model.output_bias)
    gelu_bias_ = slice_of_bias(name + ".up_proj.bias", options.model.intermediate_size, features_);
}

std::vector<Param*> Mlp::params() {
  std::vector<Param*> params = inner_.params();
  if (gelu_bias_) params.push_back(&*gelu_bias_);
  for (Param* param : down_.params()) params.push_back(param);
  return params;
}

void Mlp::forward(Context& context, Tensor x, Tensor y, Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  form({context, stash}, x);
  const Inner inner = kept_inner(stash);
  const Tensor activated = context.workspace.take(options_.dtype, inner[0].sizes);
  activate(context.ops, inner, activated);
  down_.forward(context, activated, y);
}

void Mlp::form(const Forming& forming, Tensor x) const {
  set_x(forming.stash, x);
  const bool is_dropped = options_.recompute.operations.contain(BlockOperation::mlp);
  const Sizes sizes = {options_.num_tokens(), features_.count};
  Inner inner;
  for (int i = 0; i < num_inner(options_); ++i)
    inner.push_back(
        forming.place({this, kept_inner_0 + i, is_dropped, LastReader::backward_weight}, options_.dtype, sizes));
  if (!forming.runs(is_dropped)) return;
  if (forming.pass == Pass::forward)
    inner_.forward(forming.context, x, inner);
  else
    set_x(forming.stash, inner_.forward_again(forming.context, x, inner));
}

void Mlp::set_x(Stash& stash, Tensor x) const { stash.keep_view(this, kept_x, x); }

void Mlp::apply(Context& context, Tensor x, Tensor y) const {
  const Stack::Scope scope(context.workspace);
  const Sizes sizes = {x.size(0), features_.count};
  Inner inner;
  for (int i = 0; i < num_inner(options_); ++i) inner.push_back(context.workspace.take(options_.dtype, sizes));
  const Tensor activated = context.workspace.take(options_.dtype, sizes);
  inner_.products(context, x, inner);
  activate(context.ops, inner, activated);
  down_.forward(context, activated, y);
}

void Mlp::backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const {
  const Inner inner = kept_inner(stash);
  const Tensor dy_full =
      stash.keep_gradient(this, kept_dy, options_.dtype, {options_.num_tokens(), options_.model.hidden_size});
  const Tensor activated = stash.keep_gradient(this, kept_activated, options_.dtype, inner[0].sizes),
               dactivated = activated;
  gather_tokens_into(context, options_, dy_full, dy);
  down_.backward_input(context, dy_full, dactivated);
  activation_gradients(context.ops, inner, dactivated, {});
  inner_.backward_input(context, inner, dx);
}

void Mlp::backward_weight(Context& context, Stash& stash) {
  const Inner gradients = kept_inner(stash);
  down_.backward_weight(context, stash.kept(this, kept_dy), stash.kept(this, kept_activated));
  if (gelu_bias_) context.ops.bias_backward(gradients[0], gelu_bias_->grad);
  inner_.backward_weight(context, gradients, stash.kept(this, kept_x));
}

void Mlp::backward(Context& context, Tensor dy, Tensor dx, Stash& stash) {
  const Inner inner = kept_inner(stash);
  {
    const Stack::Scope scope(context.workspace);
    const Tensor dy_full = leave_backward(context, options_, dy);
    const Tensor dactivated = context.workspace.take(options_.dtype, inner[0].sizes), activated = dactivated;
    down_.backward_input(context, dy_full, dactivated);
    activation_gradients(context.ops, inner, dactivated, gelu_bias_ ? gelu_bias_->grad : Tensor());
    down_.backward_weight(context, dy_full, activated);
  }
  inner_.backward_weight(context, inner, stash.kept(this, kept_x));
  inner_.backward_input(context, inner, dx);
}

void Mlp::activate(Ops& ops, const Inner& inner, Tensor activated) const {
  switch (options_.model.mlp) {
    case MlpKind::swiglu: ops.swiglu({.gate = inner[0], .up = inner[1], .y = activated}); return;
    case MlpKind::gelu:
      ops.gelu({.x = inner[0], .y = activated, .bias = gelu_bias_ ? gelu_bias_->value : Tensor()});
      return;
  }
}

void Mlp::activation_gradients(Ops& ops, const Inner& inner, Tensor dactivated, Tensor dbias) const {
  const Tensor activated = dactivated;
  switch (options_.model.mlp) {
    case MlpKind::swiglu:
      ops.swiglu_backward(
          {.dy = dactivated, .gate = inner[0], .up = inner[1], .dgate = inner[0], .dup = inner[1], .y = activated});
      return;
    case MlpKind::gelu:
      ops.gelu_backward({.dy = dactivated,
                         .x = inner[0],
                         .dx = inner[0],
                         .bias = gelu_bias_ ? gelu_bias_->value : Tensor(),
                         .dbias = dbias,
                         .y = activated});
      return;
  }
}

Mlp::Inner Mlp::kept_inner(const Stash& stash) const {
  Inner inner;
  for (int i = 0; i < num_inner(options_); ++i) inner.push_back(stash.kept(this, kept_inner_0 + i));
  return inner;
}

}  // namespace echelon
