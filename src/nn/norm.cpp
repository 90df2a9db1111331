#include "nn/norm.h"

#include "nn/sharding.h"

namespace echelon {
Norm::Norm(NormKind kind, const ModelSpec& model, Param weight, Param bias)
    : kind_(kind),
      eps_(model.norm_eps),
      gain_offset_(kind == NormKind::rms_norm && model.norm_adds_one ? 1.0 : 0.0),
      rounds_before_gain_(kind == NormKind::rms_norm && model.norm_rounds_before_gain),
      weight_(std::move(weight)),
      bias_(std::move(bias)) {
  weight_.init_value = 1.0 - gain_offset_;
}

Norm Norm::of_tokens(const LayerOptions& options, const std::string& name) {
  const Sizes sizes = {options.model.hidden_size};
  return {options.model.norm, options.model, replicated(options, name + ".weight", sizes),
          replicated(options, name + ".bias", sizes)};
}

Norm Norm::of_heads(const LayerOptions& options, const std::string& name) {
  Param weight = replicated(options, name + ".weight", {options.model.head_dim});
  if (options.tp > 1) weight.groups.partial = tp_group;  // each rank sees its own heads only
  Norm norm = {NormKind::rms_norm, options.model, std::move(weight), {}};
  norm.rows_ = RowKind::sequence;
  return norm;
}

Norm Norm::of_projection(const LayerOptions& options, Param weight, std::int64_t width, std::optional<Group> group) {
  Norm norm = {NormKind::rms_norm, options.model, std::move(weight), {}};
  norm.rows_ = RowKind::sequence;
  norm.width_ = width;
  norm.group_ = group;
  return norm;
}

std::vector<Param*> Norm::params() {
  if (kind_ == NormKind::layer_norm) return {&weight_, &bias_};
  return {&weight_};
}

void Norm::forward(Context& context, Tensor x, Tensor y, Stash& stash) const {
  save({context, stash}, x);
  normalise(context, y, stash);
}

void Norm::save(const ComputePass& pass, Tensor x, bool drops_statistics) const {
  pass.stash.save_view(this, saved_x, x);
  const auto place = [&](Saved which) {
    (void)pass.place({this, which, rows_}, drops_statistics, accumulate_dtype(x.dtype), {x.size(0)});
  };
  if (kind_ == NormKind::layer_norm) place(saved_mean);
  place(saved_rstd);
}

void Norm::normalise(Context& context, Tensor y, const Stash& stash, Tensor residual) const {
  compute(context, stash.saved(this, saved_x), residual, y, saved_statistics(stash));
}

void Norm::apply(Context& context, Tensor x, Tensor y) const {
  const Stack::Scope scope(context.workspace);
  const DType dtype = accumulate_dtype(x.dtype);
  const Tensor mean = context.workspace.take(dtype, {x.size(0)});
  const Tensor rstd = context.workspace.take(dtype, {x.size(0)});
  compute(context, x, {}, y, {.mean = mean, .rstd = rstd});
}

void Norm::backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const {
  residual_backward_input(context, dy, {}, dx, stash);
}

void Norm::backward(Context& context, Tensor dy, Tensor dx, Stash& stash) {
  residual_backward(context, dy, {}, dx, stash);
}

void Norm::residual_backward_input(Context& context, Tensor dy, Tensor dresidual, Tensor dx, Stash& stash) const {
  if (weight_.trains) context.ops.copy(stash.save_gradient({this, saved_dy, rows_}, dy.dtype, dy.sizes), dy);
  input_gradient(context, dy, dresidual, dx, stash);
}

Tensor Norm::sums_over_ranks(Context& context, RowProductsArgs args) const {
  if (!group_) return {};
  args.sums = context.workspace.take(accumulate_dtype(args.x.dtype), {args.x.size(0)});
  context.ops.row_products(args);
  context.ops.publish();
  context.mesh.comm(*group_).all_reduce(args.sums, ReduceOp::sum).wait();
  return args.sums;
}

void Norm::input_gradient(Context& context, Tensor dy, Tensor dresidual, Tensor dx, const Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  const Tensor x = stash.saved(this, saved_x);
  const auto [mean, rstd] = saved_statistics(stash);
  switch (kind_) {
    case NormKind::layer_norm:
      context.ops.layer_norm_backward_input(
          {.dy = dy, .x = x, .w = weight_.value, .mean = mean, .rstd = rstd, .dx = dx, .dresidual = dresidual});
      return;
    case NormKind::rms_norm:
      context.ops.rms_norm_backward_input(
          {.dy = dy,
           .x = x,
           .w = weight_.value,
           .rstd = rstd,
           .dx = dx,
           .dresidual = dresidual,
           .gain_offset = gain_offset_,
           .products =
               sums_over_ranks(context, {.x = dy, .y = x, .sums = {}, .w = weight_.value, .gain_offset = gain_offset_}),
           .width = width_});
      return;
  }
}

void Norm::backward_weight(Context& context, Stash& stash) {
  if (!weight_.trains) return;
  const Tensor x = stash.saved(this, saved_x), dy = stash.saved(this, saved_dy);
  const auto [mean, rstd] = saved_statistics(stash);
  switch (kind_) {
    case NormKind::layer_norm:
      context.ops.layer_norm_backward_weight(
          {.dy = dy, .x = x, .mean = mean, .rstd = rstd, .dw = weight_.grad, .db = bias_.grad});
      return;
    case NormKind::rms_norm:
      context.ops.rms_norm_backward_weight({.dy = dy, .x = x, .rstd = rstd, .dw = weight_.grad});
      return;
  }
}

void Norm::residual_backward(Context& context, Tensor dy, Tensor dresidual, Tensor dx, Stash& stash) {
  const Tensor x = stash.saved(this, saved_x);
  if (group_ || !weight_.trains) {
    input_gradient(context, dy, dresidual, dx, stash);
    if (weight_.trains)
      context.ops.rms_norm_backward_weight(
          {.dy = dy, .x = x, .rstd = stash.saved(this, saved_rstd), .dw = weight_.grad});
    return;
  }
  const auto [mean, rstd] = saved_statistics(stash);
  switch (kind_) {
    case NormKind::layer_norm:
      context.ops.layer_norm_backward({.dy = dy,
                                       .x = x,
                                       .w = weight_.value,
                                       .mean = mean,
                                       .rstd = rstd,
                                       .dx = dx,
                                       .dw = weight_.grad,
                                       .db = bias_.grad,
                                       .dresidual = dresidual});
      return;
    case NormKind::rms_norm:
      context.ops.rms_norm_backward({.dy = dy,
                                     .x = x,
                                     .w = weight_.value,
                                     .rstd = rstd,
                                     .dx = dx,
                                     .dw = weight_.grad,
                                     .dresidual = dresidual,
                                     .gain_offset = gain_offset_});
      return;
  }
}

Norm::Statistics Norm::saved_statistics(const Stash& stash) const {
  return {.mean = kind_ == NormKind::layer_norm ? stash.saved(this, saved_mean) : Tensor(),
          .rstd = stash.saved(this, saved_rstd)};
}

void Norm::compute(Context& context, Tensor x, Tensor residual, Tensor y, const Statistics& statistics) const {
  const Stack::Scope scope(context.workspace);
  Ops& ops = context.ops;
  switch (kind_) {
    case NormKind::layer_norm:
      ops.layer_norm({.x = x,
                      .w = weight_.value,
                      .b = bias_.value,
                      .y = y,
                      .mean = statistics.mean,
                      .rstd = statistics.rstd,
                      .residual = residual,
                      .eps = eps_});
      return;
    case NormKind::rms_norm:
      ops.rms_norm({.x = x,
                    .w = weight_.value,
                    .y = y,
                    .rstd = statistics.rstd,
                    .residual = residual,
                    .eps = eps_,
                    .gain_offset = gain_offset_,
                    .rounds_before_gain = rounds_before_gain_,
                    .squares = sums_over_ranks(context, {.x = x, .y = x, .sums = {}}),
                    .width = width_});
      return;
  }
}

}  // namespace echelon
