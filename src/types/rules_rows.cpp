// The norms: each row of x must lie whole on one rank, and rows may lie anywhere. Gradients are linear in dy.
#include "types/rules.h"

namespace echelon {

AxisLayout with_rows_of(AxisLayout layout, std::int64_t from, std::int64_t to) {
  if (layout.held == Held::sharded && layout.block != outermost) layout.block = layout.block / from * to;
  return layout;
}

namespace {

/// What forward and backward of both norms have in common.
class NormRule {
 public:
  NormRule(Inference& call, const Tensor& x, const Tensor& w) : call_(call), x_(call.read("x", x)), width_(x.size(-1)) {
    const Operand weight = call.read("w", w);
    for (const TypeAxis axis : call.axes()) {
      call.require_complete(x_, axis);
      call.require_whole(weight, axis);
      const bool has_whole_rows = x_[axis].held != Held::sharded || is_cut_between_rows(x_[axis], x);
      if (!has_whole_rows) call.require_whole(x_, axis);
    }
  }

  /// Of the same rows as x, complete.
  void require_like_x(std::string_view role, const Tensor& tensor) const {
    const Operand other = call_.read(role, tensor);
    for (const TypeAxis axis : call_.axes()) {
      call_.require_complete(other, axis);
      if (other[axis] != x_[axis] && other[axis] != own_layout && x_[axis] != own_layout)
        call_.fail_together(x_, other, axis);
    }
  }

  void write_rows(const Tensor& y) const { call_.write(y, x_.piece.type); }
  void write_statistics(const Tensor& of_rows) const {
    LayoutType type = x_.piece.type;
    for (const TypeAxis axis : call_.axes()) type[axis] = with_rows_of(type[axis], width_, 1);
    call_.write(of_rows, type);
  }
  void require_statistics(std::string_view role, const Tensor& of_rows) const {
    const Operand statistics = call_.read(role, of_rows);
    for (const TypeAxis axis : call_.axes())
      if (statistics[axis] != with_rows_of(x_[axis], width_, 1)) call_.fail_together(x_, statistics, axis);
  }

  /// The type of a gradient with x's rows, from that of dy.
  [[nodiscard]] LayoutType gradient(const Operand& dy) const {
    LayoutType type;
    for (const TypeAxis axis : call_.axes()) {
      const bool is_addend = dy[axis] == partial_layout && x_[axis] == replicated_layout;
      type[axis] = is_addend ? partial_layout : call_.shared(dy, x_, axis);
    }
    return type;
  }
  void write_input_gradient(const Operand& dy, const Tensor& dx, const Tensor& dresidual) const {
    const LayoutType type = gradient(dy);
    if (dresidual.exists()) {
      const Operand residual = call_.read("dresidual", dresidual),
                    from_norm = {"the norm's gradient", dx, {.type = type, .writer = dy.piece.writer}};
      for (const TypeAxis axis : call_.axes())
        if (residual[axis] != type[axis]) call_.fail_together(residual, from_norm, axis);
    }
    call_.write(dx, type);
  }
  void add_weight_gradient(const Operand& dy, std::string_view role, const Tensor& dw) const {
    Operand product = {"dy", dy.tensor, dy.piece};
    product.piece.type = gradient(dy);
    product.piece.gathered = -1;
    LayoutType type;
    for (const TypeAxis axis : call_.axes())
      type[axis] = product[axis].held == Held::sharded ? partial_layout : product[axis];
    call_.add_to(role, dw, type);
  }

 private:
  Inference& call_;
  Operand x_;
  std::int64_t width_;
};

void add_residual(Inference& call, const Tensor& x, const Tensor& residual) {
  if (residual.exists()) infer(call, AddArgs{x, x, residual});
}

}  // namespace

void infer(Inference& call, const LayerNormArgs& args) {
  add_residual(call, args.x, args.residual);
  const NormRule rule(call, args.x, args.w);
  for (const TypeAxis axis : call.axes()) call.require_whole(call.read("b", args.b), axis);
  rule.write_rows(args.y);
  rule.write_statistics(args.mean);
  rule.write_statistics(args.rstd);
}

void infer(Inference& call, const LayerNormBackwardInputArgs& args) {
  const NormRule rule(call, args.x, args.w);
  rule.require_statistics("mean", args.mean);
  rule.require_statistics("rstd", args.rstd);
  rule.write_input_gradient(call.read("dy", args.dy), args.dx, args.dresidual);
}

void infer(Inference& call, const LayerNormBackwardWeightArgs& args) {
  const NormRule rule(call, args.x, {});
  const Operand dy = call.read("dy", args.dy);
  rule.require_statistics("mean", args.mean);
  rule.require_statistics("rstd", args.rstd);
  rule.add_weight_gradient(dy, "dw", args.dw);
  rule.add_weight_gradient(dy, "db", args.db);
}

void infer(Inference& call, const LayerNormBackwardArgs& args) {
  infer(call, LayerNormBackwardWeightArgs{args.dy, args.x, args.mean, args.rstd, args.dw, args.db});
  infer(call, LayerNormBackwardInputArgs{args.dy, args.x, args.w, args.mean, args.rstd, args.dx, args.dresidual});
}

void infer(Inference& call, const RmsNormArgs& args) {
  add_residual(call, args.x, args.residual);
  const NormRule rule(call, args.x, args.w);
  rule.write_rows(args.y);
  rule.write_statistics(args.rstd);
}

void infer(Inference& call, const RmsNormBackwardInputArgs& args) {
  const NormRule rule(call, args.x, args.w);
  rule.require_statistics("rstd", args.rstd);
  rule.write_input_gradient(call.read("dy", args.dy), args.dx, args.dresidual);
}

void infer(Inference& call, const RmsNormBackwardWeightArgs& args) {
  const NormRule rule(call, args.x, {});
  rule.require_statistics("rstd", args.rstd);
  rule.add_weight_gradient(call.read("dy", args.dy), "dw", args.dw);
}

void infer(Inference& call, const RmsNormBackwardArgs& args) {
  infer(call, RmsNormBackwardWeightArgs{args.dy, args.x, args.rstd, args.dw});
  infer(call, RmsNormBackwardInputArgs{args.dy, args.x, args.w, args.rstd, args.dx, args.dresidual});
}

}  // namespace echelon
