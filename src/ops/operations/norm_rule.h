// The type rule that both norms share: each row of x must be whole on one rank, and rows may be on any. Gradients are
// linear in dy.
#pragma once

#include "ops/description.h"
#include "types/rules.h"

namespace echelon {

/// What the forward and backward passes have in common.
class NormRule {
 public:
  NormRule(Inference& call, const Tensor& x, const Tensor& w) : call_(call), x_(call.read("x", x)), width_(x.size(-1)) {
    const Operand weight = call.read("w", w);
    for (const TypeAxis axis : call.axes()) {
      call.require_complete(x_, axis);
      call.require_whole(weight, axis);
      const bool has_whole_rows =
          x_[axis].placement != TensorPlacement::sharded || is_sharded_between_rows(x_[axis], x);
      if (!has_whole_rows) call.require_whole(x_, axis);
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
      type[axis] = product[axis].placement == TensorPlacement::sharded ? partial_layout : product[axis];
    call_.add_to(role, dw, type);
  }

 private:
  Inference& call_;
  Operand x_;
  std::int64_t width_;
};

inline void add_residual(Inference& call, const Tensor& x, const Tensor& residual) {
  if (residual.exists()) infer(call, AddArgs{x, x, residual});
}

}  // namespace echelon
