// The softmax over a vocabulary that is sharded over ranks (Shoeybi et al. 2019, section 3). Two values per token and
// rank are exchanged instead of the logits.
//
//     max = max_j z_j
//     sum = sum_j exp(z_j - max)
//     lse = max + log(sum)
//     loss = lse - z_target
//     dz = scale (exp(z - lse) - onehot(target))
//
// The logits z are norm(x) w^T / logits_scaling, or with a soft cap c c tanh(that / c), where dz is multiplied by
// 1 - (z / c)^2.
//
// sum is computed with the max of this rank's columns; the global max changes it by a factor per row. Gradients
// overwrite logits that have their dtype.
#include "nn/decoder/head.h"

#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/sharding.h"
#include "nn/tensor_parallel.h"
#include "nn/token_chunks.h"

#include <algorithm>
#include <optional>

namespace echelon {
namespace {

class CrossEntropyHead : public Head {
 public:
  CrossEntropyHead(const LayerOptions& options, Param* tied_weight);
  CrossEntropyHead(const CrossEntropyHead&) = delete;  // weight_ may point into it
  CrossEntropyHead& operator=(const CrossEntropyHead&) = delete;

  [[nodiscard]] std::vector<Param*> params() override;
  void forward(Context& context, Tensor x, Tensor y, Stash& stash) const override;
  void backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const override;
  /// Recomputes the logits and their gradients: saved by backward_input, they would be the largest tensor of the model.
  void backward_weight(Context& context, Stash& stash) override;
  void backward(Context& context, Tensor dy, Tensor dx, Stash& stash) override;

  void logits(Context& context, Tensor x, Tensor logits) const override;
  [[nodiscard]] std::int64_t num_columns() const override { return weight_->slice.entries(0).count; }
  [[nodiscard]] std::int64_t first_column() const override { return weight_->slice.entries(0).first; }

 private:
  enum Saved : int { saved_lse };  // in the stash

  using Chunk = TokenChunk;
  [[nodiscard]] std::vector<Chunk> chunks() const;
  [[nodiscard]] std::int64_t valid_columns() const {
    return std::clamp<std::int64_t>(options_.model.vocab_size - first_column(), 0, num_columns());
  }
  [[nodiscard]] DType logits_dtype() const {
    return options_.device.rounds_logits ? options_.dtype : statistics_dtype();
  }
  [[nodiscard]] DType statistics_dtype() const { return accumulate_dtype(options_.dtype); }
  /// Of its gradient too, where that does not take its place.
  [[nodiscard]] std::int64_t bytes_per_logit() const {
    const std::int64_t copies = options_.model.final_logit_softcapping > 0 ? 2 : 1;
    return copies * size_of(logits_dtype()) + (logits_dtype() == options_.dtype ? 0 : size_of(options_.dtype));
  }

  [[nodiscard]] Tensor take_normed(Context& context) const {
    return context.workspace.take(options_.dtype, {options_.num_local_tokens(), options_.model.hidden_size});
  }
  /// A chunk's logits as row_exp leaves them, and what else each row needs.
  struct Exponentials {
    Tensor exps, max, sums, sum, target_logit;  // sums = (sum, target_logit): one all-reduce
    Tensor logits = {};                         // with a soft cap: what row_exp read
  };
  /// What the matmul with the head's weight reads, of x or of what forward saved; and from its gradient that of x.
  void divide(Context& context, Tensor normed) const {
    if (options_.model.logits_scaling != 1.0) context.ops.scale(normed, 1.0 / options_.model.logits_scaling);
  }
  void soft_cap(Context& context, Tensor logits) const {
    if (const double cap = options_.model.final_logit_softcapping; cap > 0)
      context.ops.soft_cap({.x = logits, .cap = cap});
  }
  [[nodiscard]] Exponentials exponentials(Context& context, const Chunk& chunk, Tensor normed) const;
  /// Adds the loss of a chunk, and writes its lse.
  void add_loss(Context& context, const Chunk& chunk, const Exponentials& of, Tensor lse) const;
  /// The gradient of a chunk's logits, in the dtype of the activations.
  [[nodiscard]] Tensor logit_gradient(Context& context, const Chunk& chunk, const Exponentials& of, Tensor lse) const;

  LayerOptions options_;
  Norm norm_;
  std::optional<Param> own_weight_;
  Param* weight_;
};

CrossEntropyHead::CrossEntropyHead(const LayerOptions& options, Param* tied_weight)
    : options_(options), norm_(Norm::of_tokens(options, "model.norm")), weight_(tied_weight) {
  if (weight_ == nullptr) weight_ = &own_weight_.emplace(vocabulary_matrix(options, "lm_head.weight"));
  weight_->is_overwritten_by_first_matmul = true;  // a tied one too: the embedding adds to it later
}

std::vector<Param*> CrossEntropyHead::params() {
  std::vector<Param*> params = norm_.params();
  if (own_weight_) params.push_back(&*own_weight_);
  return params;
}

void CrossEntropyHead::forward(Context& context, Tensor x, Tensor /*y*/, Stash& stash) const {
  if (context.microbatch.needs_gradient) return norm_.save({context, stash}, x);
  const Stack::Scope scope(context.workspace);
  const Tensor normed = context.workspace.take(x.dtype, x.sizes);
  norm_.apply(context, x, normed);
  divide(context, normed);
  const Tensor normed_full = enter(context, options_, normed);
  for (const Chunk& chunk : chunks()) {
    const Stack::Scope of_chunk(context.workspace);
    add_loss(context, chunk, exponentials(context, chunk, normed_full),
             context.workspace.take(statistics_dtype(), {chunk.count}));
  }
}

void CrossEntropyHead::backward_input(Context& context, Tensor /*dy*/, Tensor dx, Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  const Tensor lse =
      stash.save_gradient({this, saved_lse, RowKind::sequence}, statistics_dtype(), {options_.num_tokens()});
  const Tensor normed = take_normed(context);
  norm_.normalise(context, normed, stash);
  divide(context, normed);
  const Tensor normed_full = enter(context, options_, normed), dnormed = normed, partial = normed_full;
  for (const Chunk& chunk : chunks()) {
    const Stack::Scope of_chunk(context.workspace);
    const Exponentials exps = exponentials(context, chunk, normed_full);
    add_loss(context, chunk, exps, chunk.of(lse));
    const Tensor dlogits = logit_gradient(context, chunk, exps, chunk.of(lse));
    // Its rows of normed_full were read for the last time.
    context.ops.matmul({.a = dlogits, .b = weight_->value, .c = chunk.of(partial)});
  }
  enter_backward(context, options_, dnormed, partial);
  divide(context, dnormed);
  norm_.backward_input(context, dnormed, dx, stash);
}

void CrossEntropyHead::backward_weight(Context& context, Stash& stash) {
  if (!weight_->trains) return norm_.backward_weight(context, stash);
  const Stack::Scope scope(context.workspace);
  const Tensor lse = stash.saved(this, saved_lse);
  const Tensor normed = take_normed(context);
  norm_.normalise(context, normed, stash);
  divide(context, normed);
  const Tensor normed_full = enter(context, options_, normed);
  for (const Chunk& chunk : chunks()) {
    const Stack::Scope of_chunk(context.workspace);
    const Tensor dlogits = logit_gradient(context, chunk, exponentials(context, chunk, normed_full), chunk.of(lse));
    if (weight_->trains) context.ops.matmul(weight_gradient(*weight_, dlogits, chunk.of(normed_full)));
  }
  norm_.backward_weight(context, stash);
}

void CrossEntropyHead::backward(Context& context, Tensor /*dy*/, Tensor dx, Stash& stash) {
  const Stack::Scope scope(context.workspace);
  const Tensor normed = take_normed(context);
  norm_.normalise(context, normed, stash);
  divide(context, normed);
  const Tensor normed_full = enter(context, options_, normed), dnormed = normed, partial = normed_full;
  for (const Chunk& chunk : chunks()) {
    const Stack::Scope of_chunk(context.workspace);
    const Exponentials exps = exponentials(context, chunk, normed_full);
    const Tensor lse = context.workspace.take(statistics_dtype(), {chunk.count});
    add_loss(context, chunk, exps, lse);
    const Tensor dlogits = logit_gradient(context, chunk, exps, lse);
    if (weight_->trains) context.ops.matmul(weight_gradient(*weight_, dlogits, chunk.of(normed_full)));
    // Its rows of normed_full were read for the last time.
    context.ops.matmul({.a = dlogits, .b = weight_->value, .c = chunk.of(partial)});
  }
  enter_backward(context, options_, dnormed, partial);
  divide(context, dnormed);
  norm_.backward(context, dnormed, dx, stash);
}

void CrossEntropyHead::logits(Context& context, Tensor x, Tensor logits) const {
  const Stack::Scope scope(context.workspace);
  const Tensor normed = context.workspace.take(x.dtype, x.sizes);
  norm_.apply(context, x, normed);
  divide(context, normed);
  context.ops.matmul({.a = normed, .b = weight_->value, .c = logits, .transpose_b = true});
  soft_cap(context, logits);
}

std::vector<TokenChunk> CrossEntropyHead::chunks() const {
  const HeadChunk& limits = options_.device.head_chunk;
  const std::int64_t of_bytes = limits.max_bytes / (num_columns() * bytes_per_logit());
  return token_chunks(options_.num_tokens(), std::min(of_bytes, limits.max_tokens), limits.multiple);
}

CrossEntropyHead::Exponentials CrossEntropyHead::exponentials(Context& context, const Chunk& chunk,
                                                              Tensor normed) const {
  Exponentials of;
  of.exps = context.workspace.take(logits_dtype(), {chunk.count, num_columns()});
  of.max = context.workspace.take(statistics_dtype(), {chunk.count});
  of.sums = context.workspace.take(statistics_dtype(), {2, chunk.count});
  of.sum = of.sums.rows(0, 1).flat();
  of.target_logit = of.sums.rows(1, 1).flat();
  context.ops.matmul({.a = chunk.of(normed), .b = weight_->value, .c = of.exps, .transpose_b = true});
  if (options_.model.final_logit_softcapping > 0) {
    soft_cap(context, of.exps);
    of.logits = context.workspace.take(logits_dtype(), of.exps.sizes);
    context.ops.copy(of.logits, of.exps);
  }
  context.ops.row_exp({.logits = of.exps,
                       .targets = chunk.of(context.microbatch.targets),
                       .max = of.max,
                       .sum = of.sum,
                       .target_logit = of.target_logit,
                       .first_column = first_column(),
                       .valid_columns = valid_columns()});
  return of;
}

void CrossEntropyHead::add_loss(Context& context, const Chunk& chunk, const Exponentials& of, Tensor lse) const {
  const Stack::Scope scope(context.workspace);
  Tensor row_max = of.max;
  if (options_.tp > 1) {
    row_max = context.workspace.take(of.max.dtype, of.max.sizes);
    context.ops.copy(row_max, of.max);
    all_reduce_over_tp(context, options_, row_max, ReduceOp::max);
    context.ops.rescale_sums({.sum = of.sum, .max = of.max, .row_max = row_max});
    all_reduce_over_tp(context, options_, of.sums, ReduceOp::sum);
  }
  context.ops.cross_entropy({.max = row_max,
                             .sum = of.sum,
                             .target_logit = of.target_logit,
                             .targets = chunk.of(context.microbatch.targets),
                             .lse = lse,
                             .loss_sum = context.microbatch.loss_sum});
}

Tensor CrossEntropyHead::logit_gradient(Context& context, const Chunk& chunk, const Exponentials& of,
                                        Tensor lse) const {
  const Tensor dlogits =
      options_.dtype == of.exps.dtype ? of.exps : context.workspace.take(options_.dtype, of.exps.sizes);
  context.ops.cross_entropy_backward({.exps = of.exps,
                                      .max = of.max,
                                      .lse = lse,
                                      .targets = chunk.of(context.microbatch.targets),
                                      .dlogits = dlogits,
                                      .loss_scale = context.microbatch.loss_scale,
                                      .first_column = first_column(),
                                      .valid_columns = valid_columns(),
                                      .scale = context.microbatch.gradient_scale});
  if (const double cap = options_.model.final_logit_softcapping; cap > 0)
    context.ops.soft_cap_backward({.dx = dlogits, .y = of.logits, .cap = cap});
  return dlogits;
}

}  // namespace

std::unique_ptr<Head> make_head(const LayerOptions& options, Param* tied_weight) {
  return std::make_unique<CrossEntropyHead>(options, tied_weight);
}

}  // namespace echelon
