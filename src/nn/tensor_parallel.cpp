#include "nn/tensor_parallel.h"

#include "spec/groups.h"

namespace echelon {

Tensor gather_tokens(Context& context, const LayerOptions& options, Tensor local) {
  if (!splits_tokens(options)) return local;
  Tensor full = context.workspace.take(local.dtype, {options.num_tokens(), local.size(1)});
  gather_tokens_into(context, options, full, local);
  return full;
}

void gather_tokens_into(Context& context, const LayerOptions& options, Tensor full, Tensor local) {
  if (!splits_tokens(options)) {
    context.ops.copy(full, local);
    return;
  }
  context.ops.publish();
  context.mesh.comm(tp_group).all_gather(full, local).wait();
}

Tensor partial_of(Context& context, const LayerOptions& options, Tensor local) {
  return splits_tokens(options) ? context.workspace.take(local.dtype, {options.num_tokens(), local.size(1)}) : local;
}

void sum_partials(Context& context, const LayerOptions& options, Tensor local, Tensor partial) {
  if (!splits_tokens(options)) {
    all_reduce_over_tp(context, options, local, ReduceOp::sum);
    return;
  }
  context.ops.publish();
  context.mesh.comm(tp_group).reduce_scatter(local, partial, ReduceOp::sum).wait();
}

Tensor local_tokens(const LayerOptions& options, Tensor full) {
  return splits_tokens(options) ? full.rows(options.tp_rank * options.num_local_tokens(), options.num_local_tokens())
                                : full;
}

void all_reduce_over_tp(Context& context, const LayerOptions& options, Tensor x, ReduceOp op) {
  if (options.tp == 1) return;
  context.ops.publish();
  context.mesh.comm(tp_group).all_reduce(x, op).wait();
}

}  // namespace echelon
