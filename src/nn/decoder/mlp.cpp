#include "nn/decoder/mlp.h"

#include "nn/mixture/token_gate.h"
#include "nn/tensor_parallel.h"

namespace echelon {
namespace {

int num_inner(const LayerOptions& options) { return is_gated(options.model.mlp) ? 2 : 1; }

Linear inner_product(const LayerOptions& options, const std::string& name, Slice features) {
  const ModelSpec& model = options.model;
  Linear linear(options,
                row_slice_of_matrix(options, name + ".weight", {model.intermediate_size, model.hidden_size}, features));
  if (model.mlp_bias && is_gated(model.mlp))
    linear.set_bias(slice_of_bias(name + ".bias", model.intermediate_size, features));
  return linear;
}

std::vector<Linear> inner_products(const LayerOptions& options, const std::string& name, Slice features,
                                   bool gates_tokens) {
  std::vector<Linear> linears;
  if (is_gated(options.model.mlp)) linears.push_back(inner_product(options, name + ".gate_proj", features));
  linears.push_back(inner_product(options, name + ".up_proj", features));
  add_adapters(options, linears, ShardedSide::outputs);
  if (gates_tokens) linears.push_back(token_gate(options, name + "_gate.weight"));
  return linears;
}

GeluKind gelu_kind(MlpKind kind) { return kind == MlpKind::gelu_erf ? GeluKind::erf : GeluKind::tanh; }
GateKind gate_kind(MlpKind kind) { return kind == MlpKind::geglu ? GateKind::gelu_tanh : GateKind::silu; }

}  // namespace

Mlp::Mlp(const LayerOptions& options, const std::string& name, bool gates_tokens)
    : options_(options),
      gates_tokens_(gates_tokens),
      features_(even_slice(options.model.intermediate_size, options.tp, options.tp_rank)),
      inner_(options, inner_products(options, name, features_, gates_tokens)),
      down_(row_parallel(options, name + ".down_proj", options.model.intermediate_size, features_,
                         options.model.mlp_bias)) {
  if (!is_gated(options.model.mlp) && options.model.mlp_bias)
    gelu_bias_ = slice_of_bias(name + ".up_proj.bias", options.model.intermediate_size, features_);
}

std::vector<Param*> Mlp::params() {
  std::vector<Param*> params = inner_.params();
  if (gelu_bias_) params.push_back(&*gelu_bias_);
  for (Param* param : down_.params()) params.push_back(param);
  return params;
}

void Mlp::compute(const ComputePass& pass, Tensor x) const {
  prepare(pass, x);
  if (pass.runs(recomputes_from_x())) compute_prepared(pass.context, pass.stash);
}

// A backward pass saves x with all tokens where it gathers them, for backward_weight.
void Mlp::prepare(const ComputePass& pass, Tensor x) const {
  save_x(pass.stash, x);
  if (is_chunked()) return;
  const bool drops = recomputes_from_x();
  const Sizes sizes = {options_.num_tokens(), features_.count};
  for (int i = 0; i < num_inner(options_); ++i)
    (void)pass.place({this, saved_inner_0 + i, RowKind::sequence}, drops, options_.dtype, sizes);
  if (gates_tokens_)
    (void)pass.place({this, saved_logits, RowKind::sequence, LastReader::backward_input}, drops,
                     accumulate_dtype(options_.dtype), {options_.num_tokens(), 1});
  if (pass.kind != Pass::forward && recomputes_from_x()) save_x(pass.stash, enter(pass.context, options_, x));
}

void Mlp::compute_prepared(Context& context, const Stash& stash) const {
  if (is_chunked()) return;
  const Tensor x = saved_x(stash);
  if (x.size(0) == options_.num_tokens())
    inner_.products(context, x, saved_inner(stash));
  else
    inner_.forward(context, x, saved_inner(stash));
}

bool Mlp::halves(Tensor x) const {
  return is_gated(options_.model.mlp) && !options_.is_float8 && !is_chunked() && x.size(0) == options_.num_tokens() &&
         x.size(0) > 1;
}

void Mlp::start_prepared(Context& context, const Stash& stash) const {
  const Tensor x = saved_x(stash);
  if (!halves(x)) return compute_prepared(context, stash);
  const Inner inner = saved_inner(stash);
  const std::int64_t half = x.size(0) / 2;
  const Tensor first_of_up = inner[1].rows(0, half);
  inner_.products(context, x, {inner.data(), 1});
  inner_.products(context, x.rows(0, half), {&first_of_up, 1}, 1);
  inner_.products(context, x, std::span(inner).subspan(2), 2);
}

void Mlp::finish_prepared(Context& context, const Stash& stash) const {
  const Tensor x = saved_x(stash);
  if (!halves(x)) return;
  const std::int64_t half = x.size(0) / 2, others = x.size(0) - half;
  const Tensor last_of_up = saved_inner(stash)[1].rows(half, others);
  inner_.products(context, x.rows(half, others), {&last_of_up, 1}, 1);
}

void Mlp::project(Context& context, Tensor y, const Stash& stash) const {
  if (is_chunked()) return project_chunks(context, y, stash);
  const Stack::Scope scope(context.workspace);
  const Inner inner = saved_inner(stash);
  const Tensor activated = take_activated(context, inner[0].sizes);
  activate(context, inner, activated);
  down_.forward(context, activated, y);
}

bool Mlp::recomputes_from_x() const { return options_.recompute.operations.contain(BlockOperation::mlp); }

// In both backward passes the gradients of inner are stored where inner was, and the activation, which the gradient of
// down's weight reads, where its own gradient was.

void Mlp::backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const {
  backward_input_inner(context, {dy, dx}, stash);
  backward_input_outer(context, {dy, dx}, stash);
}

void Mlp::backward_input_inner(Context& context, const Gradients& of, Stash& stash) const {
  if (is_chunked()) return;
  const Inner inner = saved_inner(stash);
  const auto save = [&](Saved which, const Sizes& sizes) {
    return stash.save_gradient({this, which, RowKind::sequence}, options_.dtype, sizes);
  };
  const Tensor dy_full = save_dy(stash), dlogits = gates_tokens_ ? save(saved_dlogits, inner.back().sizes) : Tensor();
  (void)save(saved_activated, inner[0].sizes);
  if (options_.is_float8)
    (void)stash.save_gradient({this, saved_amaxes, RowKind::none}, DType::float32, {num_inner(options_) + 1});
  gather_tokens_into(context, options_, dy_full, of.dy);
  const Stack::Scope scope(context.workspace);
  LinearOperand of_dy = down_.operand(context, dy_full, Float8Order::as_is);
  inner_gradients(context, inner, of_dy,
                  {.dinner = saved_gradients(stash), .activated = saved_activation(stash), .dlogits = dlogits});
}

void Mlp::backward_input_outer(Context& context, const Gradients& of, Stash& stash) const {
  if (is_chunked()) return backward_input_of_chunks(context, of.dy, of.dx, stash);
  Inner dinner = saved_gradients(stash);
  if (gates_tokens_) dinner.back() = stash.saved(this, saved_dlogits);
  inner_.backward_input(context, dinner, of.dx);
}

void Mlp::backward_weight(Context& context, Stash& stash) {
  if (is_chunked()) return backward_weight_of_chunks(context, stash);
  Inner dinner = saved_gradients(stash);
  if (gates_tokens_) dinner.back() = stash.saved(this, saved_dlogits);
  down_.backward_weight(context, stash.saved(this, saved_dy), saved_activation(stash));
  if (gelu_bias_ && gelu_bias_->trains) context.ops.bias_backward(dinner[0], gelu_bias_->grad);
  inner_.backward_weight(context, dinner, saved_x(stash));
}

void Mlp::backward(Context& context, Tensor dy, Tensor dx, Stash& stash) {
  const Stack::Scope of_pass(context.workspace);
  const Gradients of = gradients(context, dy, dx);
  backward_inner(context, of, stash);
  backward_outer(context, of, stash);
}

Mlp::Gradients Mlp::gradients(Context& context, Tensor dy, Tensor dx) const {
  Gradients of = {dy, dx};
  if (gates_tokens_) of.dlogits = context.workspace.take(options_.dtype, {options_.num_tokens(), 1});
  if (!is_chunked()) of.amaxes = take_amaxes(context);
  return of;
}

void Mlp::backward_inner(Context& context, const Gradients& of, const Stash& stash) {
  if (is_chunked()) return;
  const Stack::Scope scope(context.workspace);
  const Inner inner = saved_inner(stash);
  const Tensor dy_full = leave_backward(context, options_, of.dy), activated = take_activated(context, inner[0].sizes);
  LinearOperand of_dy = down_.gradient_operand(context, dy_full);
  inner_gradients(context, inner, of_dy, {with_amaxes(inner, of.amaxes), activated, bias_gradient(), of.dlogits});
  down_.backward_weight(context, of_dy, activated);
  if (const Tensor x = saved_x(stash); halves(x)) inner_.weight_gradients(context, {inner.data(), 1}, x);
}

void Mlp::backward_outer(Context& context, const Gradients& of, Stash& stash) {
  if (is_chunked()) return backward_chunks(context, of.dy, of.dx, stash);
  Inner dinner = with_amaxes(saved_inner(stash), of.amaxes);
  if (gates_tokens_) dinner.back() = of.dlogits;
  const Tensor x = saved_x(stash);
  if (!halves(x)) return inner_.backward(context, dinner, x, of.dx);
  inner_.weight_gradients(context, std::span(dinner).subspan(1), x, 1);
  inner_.backward_input(context, dinner, of.dx);
}

void Mlp::decode(Context& context, Tensor x, Tensor y, const KvCache& /*cache*/,
                 std::int64_t /*first_position*/) const {
  const Stack::Scope scope(context.workspace);
  const Inner inner = take_inner(context, x.size(0));
  const Tensor activated = take_activated(context, inner[0].sizes);
  inner_.products(context, x, inner);
  activate(context, inner, activated);
  down_.forward(context, activated, y);
}

void Mlp::activate(Context& context, const Inner& inner, Tensor activated) const {
  Ops& ops = context.ops;
  const MlpKind kind = options_.model.mlp;
  if (is_gated(kind)) {
    ops.swiglu({.gate = inner[0], .up = inner[1], .y = activated, .kind = gate_kind(kind)});
    if (gates_tokens_) weight_by_gate(context, inner.back(), activated);
    return;
  }
  ops.gelu({.x = inner[0], .y = activated, .bias = gelu_bias_ ? gelu_bias_->value : Tensor(), .kind = gelu_kind(kind)});
}

// A gate of tokens weights it where it is.
Tensor Mlp::take_activated(Context& context, const Sizes& sizes) const {
  const Tensor activated = context.workspace.take(options_.dtype, sizes);
  return gates_tokens_ ? activated : with_amax(context, options_, activated);
}

std::vector<Tensor> Mlp::take_amaxes(Context& context) const {
  std::vector<Tensor> amaxes;
  for (int i = 0; options_.is_float8 && i < num_inner(options_); ++i)
    amaxes.push_back(context.workspace.take(DType::float32, {1}));
  return amaxes;
}

Mlp::Inner Mlp::with_amaxes(Inner dinner, const std::vector<Tensor>& amaxes) {
  for (std::size_t i = 0; i < amaxes.size(); ++i) dinner[i] = dinner[i].with_amax(amaxes[i]);
  return dinner;
}

Mlp::Inner Mlp::saved_gradients(const Stash& stash) const {
  std::vector<Tensor> amaxes;
  for (int i = 0; options_.is_float8 && i < num_inner(options_); ++i)
    amaxes.push_back(stash.saved(this, saved_amaxes).rows(i, 1));
  return with_amaxes(saved_inner(stash), amaxes);
}

Tensor Mlp::saved_activation(const Stash& stash) const {
  const Tensor activated = stash.saved(this, saved_activated);
  if (!options_.is_float8 || gates_tokens_) return activated;
  return activated.with_amax(stash.saved(this, saved_amaxes).rows(num_inner(options_), 1));
}

void Mlp::activation_gradients(Ops& ops, const Inner& inner, const ActivationGradients& of) const {
  const MlpKind kind = options_.model.mlp;
  if (is_gated(kind))
    return ops.swiglu_backward({.dy = of.dactivated,
                                .gate = inner[0],
                                .up = inner[1],
                                .dgate = of.dinner[0],
                                .dup = of.dinner[1],
                                .y = gates_tokens_ ? Tensor() : of.activated,
                                .kind = gate_kind(kind)});
  ops.gelu_backward({.dy = of.dactivated,
                     .x = inner[0],
                     .dx = of.dinner[0],
                     .bias = gelu_bias_ ? gelu_bias_->value : Tensor(),
                     .dbias = of.dbias,
                     .y = of.activated,
                     .kind = gelu_kind(kind)});
}

// A gate's gradient reads what was weighted, which needs a place of its own.
void Mlp::inner_gradients(Context& context, const Inner& inner, LinearOperand& dy, const InnerGradients& of) const {
  const Stack::Scope scope(context.workspace);
  const Tensor dactivated =
      gates_tokens_ ? context.workspace.take(of.activated.dtype, of.activated.sizes) : of.activated.without_amax();
  down_.backward_input(context, dy, dactivated);
  if (gates_tokens_) {
    context.ops.swiglu({.gate = inner[0], .up = inner[1], .y = of.activated});
    gate_backward(context, inner.back(), {dactivated, of.activated, of.dlogits});
  }
  activation_gradients(context.ops, inner, {of.dinner, dactivated, of.activated, of.dbias});
}

Mlp::Inner Mlp::take_inner(Context& context, std::int64_t num_tokens) const {
  Inner inner(static_cast<std::size_t>(num_inner(options_)));
  for (Tensor& each : inner) each = context.workspace.take(options_.dtype, {num_tokens, features_.count});
  if (gates_tokens_) inner.push_back(context.workspace.take(accumulate_dtype(options_.dtype), {num_tokens, 1}));
  return inner;
}

Tensor Mlp::save_dy(Stash& stash) const {
  return stash.save_gradient({this, saved_dy, RowKind::sequence}, options_.dtype,
                             {options_.num_tokens(), options_.model.hidden_size});
}

Mlp::Inner Mlp::saved_inner(const Stash& stash) const {
  Inner inner;
  for (int i = 0; i < num_inner(options_); ++i) inner.push_back(stash.saved(this, saved_inner_0 + i));
  if (gates_tokens_) inner.push_back(stash.saved(this, saved_logits));
  return inner;
}

}  // namespace echelon
