// A branch of a decoder block: attention or an MLP. The block adds its y to the residual stream.
//
//     compute     x -> all that backward reads: q, k, v and the attention's result; the MLP's gate and up
//     project     that -> y, by the matmul at the end of the branch
#pragma once

#include "nn/compute_pass.h"
#include "nn/decoder/kv_cache.h"
#include "nn/layer.h"
#include "nn/parallel_linear.h"

#include <span>

namespace echelon {

class Branch : public Layer {
 public:
  /// compute, then project.
  void forward(Context& context, Tensor x, Tensor y, Stash& stash) const final;

  /// Saves all that a backward pass reads. In a backward pass it recomputes what forward dropped; x has forward's
  /// values then, and need not be computed unless recomputes_from_x(). Takes workspace within the caller's scope.
  virtual void compute(const ComputePass& pass, Tensor x) const = 0;
  /// y of what was computed.
  virtual void project(Context& context, Tensor y, const Stash& stash) const = 0;
  /// Whether forward drops what the first matmuls give, so that a backward pass recomputes it from x.
  [[nodiscard]] virtual bool recomputes_from_x() const = 0;
  /// Whether backward_input may read x itself: then x is computed before it.
  [[nodiscard]] virtual bool backward_input_reads_x() const { return false; }
  /// For backward_weight, where the x of forward or of the last backward pass is gone.
  void save_x(Stash& stash, Tensor x) const { stash.save_view(this, saved_x_, x); }

  /// Forward without a gradient for the next positions of every sequence, from first_position on: x, y [B n,
  /// hidden_size] on all ranks. Adds their keys and values to the cache, if the branch has some.
  virtual void decode(Context& context, Tensor x, Tensor y, const KvCache& cache,
                      std::int64_t first_position) const = 0;

 protected:
  /// ys = the products of x at the start of the branch, in passes that compute them. Saves x for backward_weight: as it
  /// is, or with all tokens if a backward pass gathered them.
  void compute_first(const ComputePass& pass, const ColumnParallel& products, Tensor x,
                     std::span<const Tensor> ys) const;
  [[nodiscard]] Tensor saved_x(const Stash& stash) const { return stash.saved(this, saved_x_); }

 private:
  static constexpr int saved_x_ = -1;  // branches count what else they save from 0
};

}  // namespace echelon
