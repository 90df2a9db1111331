#include "nn/decoder/branch.h"

namespace echelon {

void Branch::forward(Context& context, Tensor x, Tensor y, Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  compute({context, stash}, x);
  project(context, y, stash);
}

void Branch::compute_first(const ComputePass& pass, const ColumnParallel& products, Tensor x,
                           std::span<const Tensor> ys) const {
  save_x(pass.stash, x);
  if (!pass.runs(recomputes_from_x())) return;
  if (pass.kind == Pass::forward)
    products.forward(pass.context, x, ys);
  else
    save_x(pass.stash, products.recompute(pass.context, x, ys));
}

}  // namespace echelon
