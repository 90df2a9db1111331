// The softmax over a vocabulary that is cut over ranks (Shoeybi et al. 2019, section 3): two numbers per token and rank are exchanged instead of the logits.
//
//     max = max_j z_j      sum = sum_j exp(z_j - max)      lse = max + log(sum)      loss = lse - z_target      dz = scale (exp(z - lse) - onehot(target))
#include "nn/head.h"

#include "nn/norm.h"
#include "nn/sharding.h"
#include "nn/tensor_parallel.h"

#include <algorithm>
#include <optional>

namespace echelon {
namespace {

// Elements of the logits that exist at a time: large enough for an efficient product, small beside the activations of a layer.
constexpr std::int64_t max_chunk_elements = std::int64_t{1} << 21;

enum Kept : int { kept_normed, kept_lse, kept_dnormed };

class CrossEntropyHead : public Head {
 public:
  CrossEntropyHead(const LayerOptions& options, Param* tied_weight);
  CrossEntropyHead(const CrossEntropyHead&) = delete;  // weight_ may point into it
  CrossEntropyHead& operator=(const CrossEntropyHead&) = delete;

  [[nodiscard]] std::vector<Param*> params() override;
  void forward(Context& context, Tensor x, Tensor y, Stash& stash) const override;
  void backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const override;
  /// Forms the logits and their gradients once more: kept, they would be the largest tensor of the model.
  void backward_weight(Context& context, Stash& stash) override;
  void backward(Context& context, Tensor dy, Tensor dx, Stash& stash) override;

  void logits(Context& context, Tensor x, Tensor logits) const override;
  [[nodiscard]] std::int64_t num_columns() const override { return weight_->split_count; }
  [[nodiscard]] std::int64_t first_column() const override { return weight_->split_first; }

 private:
  struct Chunk {
    std::int64_t first = 0, count = 0;
    [[nodiscard]] Tensor of(Tensor all_tokens) const { return all_tokens.rows(first, count); }
  };
  [[nodiscard]] std::vector<Chunk> chunks() const;
  [[nodiscard]] std::int64_t valid_columns() const { return std::clamp<std::int64_t>(options_.model.vocab_size - first_column(), 0, num_columns()); }
  [[nodiscard]] DType logits_dtype() const { return accumulate_dtype(options_.dtype); }

  [[nodiscard]] Tensor chunk_logits(Context& context, Tensor normed) const;
  void add_loss(Context& context, const Chunk& chunk, Tensor logits, Tensor lse) const;
  /// The gradient of a chunk's logits, in the dtype of the activations.
  [[nodiscard]] Tensor chunk_gradient(Context& context, const Chunk& chunk, Tensor normed, Tensor lse) const;
  void add_weight_gradient(Context& context, Tensor dlogits, Tensor normed);

  LayerOptions options_;
  Norm norm_;
  std::optional<Param> own_weight_;
  Param* weight_;
};

CrossEntropyHead::CrossEntropyHead(const LayerOptions& options, Param* tied_weight)
    : options_(options), norm_(Norm::of_tokens(options, "model.norm")), weight_(tied_weight) {
  if (weight_ == nullptr) weight_ = &own_weight_.emplace(vocabulary_matrix(options, "lm_head.weight"));
}

std::vector<Param*> CrossEntropyHead::params() {
  std::vector<Param*> params = norm_.params();
  if (own_weight_) params.push_back(&*own_weight_);
  return params;
}

void CrossEntropyHead::forward(Context& context, Tensor x, Tensor /*y*/, Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  const Tensor normed = stash.keep(this, kept_normed, x.dtype, x.sizes);
  const Tensor lse = stash.keep(this, kept_lse, logits_dtype(), {options_.num_tokens()});
  norm_.forward(context, x, normed, stash);
  const Tensor normed_full = enter(context, options_, normed);
  for (const Chunk& chunk : chunks()) {
    const Stack::Scope of_chunk(context.workspace);
    add_loss(context, chunk, chunk_logits(context, chunk.of(normed_full)), chunk.of(lse));
  }
}

void CrossEntropyHead::backward_input(Context& context, Tensor /*dy*/, Tensor dx, Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  const Tensor normed = stash.kept(this, kept_normed), lse = stash.kept(this, kept_lse);
  const Tensor dnormed = context.workspace.take(dx.dtype, dx.sizes);
  const Tensor partial = partial_of(context, options_, dnormed);
  const Tensor normed_full = enter(context, options_, normed);
  for (const Chunk& chunk : chunks()) {
    const Stack::Scope of_chunk(context.workspace);
    const Tensor dlogits = chunk_gradient(context, chunk, chunk.of(normed_full), chunk.of(lse));
    context.ops.matmul({.a = dlogits, .b = weight_->value, .c = chunk.of(partial)});
  }
  enter_backward(context, options_, dnormed, partial);
  norm_.backward_input(context, dnormed, dx, stash);
}

void CrossEntropyHead::backward_weight(Context& context, Stash& stash) {
  const Stack::Scope scope(context.workspace);
  const Tensor lse = stash.kept(this, kept_lse);
  const Tensor normed_full = enter(context, options_, stash.kept(this, kept_normed));
  for (const Chunk& chunk : chunks()) {
    const Stack::Scope of_chunk(context.workspace);
    const Tensor dlogits = chunk_gradient(context, chunk, chunk.of(normed_full), chunk.of(lse));
    add_weight_gradient(context, dlogits, chunk.of(normed_full));
  }
  norm_.backward_weight(context, stash);
}

void CrossEntropyHead::backward(Context& context, Tensor /*dy*/, Tensor dx, Stash& stash) {
  const Stack::Scope scope(context.workspace);
  const Tensor lse = stash.kept(this, kept_lse);
  const Tensor dnormed = context.workspace.take(dx.dtype, dx.sizes);
  const Tensor partial = partial_of(context, options_, dnormed);
  const Tensor normed_full = enter(context, options_, stash.kept(this, kept_normed));
  for (const Chunk& chunk : chunks()) {
    const Stack::Scope of_chunk(context.workspace);
    const Tensor dlogits = chunk_gradient(context, chunk, chunk.of(normed_full), chunk.of(lse));
    context.ops.matmul({.a = dlogits, .b = weight_->value, .c = chunk.of(partial)});
    add_weight_gradient(context, dlogits, chunk.of(normed_full));
  }
  enter_backward(context, options_, dnormed, partial);
  norm_.backward(context, dnormed, dx, stash);
}

void CrossEntropyHead::logits(Context& context, Tensor x, Tensor logits) const {
  const Stack::Scope scope(context.workspace);
  const Tensor normed = context.workspace.take(x.dtype, x.sizes);
  norm_.apply(context, x, normed);
  context.ops.matmul({.a = normed, .b = weight_->value, .c = logits, .transpose_b = true});
}

std::vector<CrossEntropyHead::Chunk> CrossEntropyHead::chunks() const {
  const std::int64_t num_tokens = options_.num_tokens();
  const std::int64_t most = std::clamp<std::int64_t>(max_chunk_elements / num_columns(), 1, num_tokens);
  const std::int64_t num_chunks = (num_tokens + most - 1) / most;
  std::vector<Chunk> chunks;
  for (std::int64_t i = 0; i < num_chunks; ++i) {
    const Slice slice = even_slice(num_tokens, num_chunks, i);
    chunks.push_back({slice.first, slice.count});
  }
  return chunks;
}

Tensor CrossEntropyHead::chunk_logits(Context& context, Tensor normed) const {
  const Tensor logits = context.workspace.take(logits_dtype(), {normed.size(0), num_columns()});
  context.ops.matmul({.a = normed, .b = weight_->value, .c = logits, .transpose_b = true});
  return logits;
}

void CrossEntropyHead::add_loss(Context& context, const Chunk& chunk, Tensor logits, Tensor lse) const {
  const Tensor targets = chunk.of(context.microbatch.targets);
  const Tensor max = context.workspace.take(logits_dtype(), {chunk.count});
  const Tensor sums = context.workspace.take(logits_dtype(), {2, chunk.count});  // of exponentials, and the target's logit: one all-reduce
  const Tensor sum = sums.rows(0, 1).flat(), target_logit = sums.rows(1, 1).flat();
  context.ops.row_max({.logits = logits, .max = max, .valid_columns = valid_columns()});
  all_reduce_over_tp(context, options_, max, ReduceOp::max);
  context.ops.row_sum_exp({.logits = logits,
                           .max = max,
                           .targets = targets,
                           .sum = sum,
                           .target_logit = target_logit,
                           .first_column = first_column(),
                           .valid_columns = valid_columns()});
  all_reduce_over_tp(context, options_, sums, ReduceOp::sum);
  context.ops.cross_entropy({.max = max, .sum = sum, .target_logit = target_logit, .targets = targets, .lse = lse, .loss_sum = context.microbatch.loss_sum});
}

Tensor CrossEntropyHead::chunk_gradient(Context& context, const Chunk& chunk, Tensor normed, Tensor lse) const {
  const Tensor logits = chunk_logits(context, normed);
  context.ops.cross_entropy_backward({.logits = logits,
                                      .lse = lse,
                                      .targets = chunk.of(context.microbatch.targets),
                                      .first_column = first_column(),
                                      .valid_columns = valid_columns(),
                                      .scale = context.microbatch.gradient_scale});
  if (logits.dtype == options_.dtype) return logits;
  const Tensor dlogits = context.workspace.take(options_.dtype, logits.sizes);
  context.ops.copy(dlogits, logits);
  return dlogits;
}

void CrossEntropyHead::add_weight_gradient(Context& context, Tensor dlogits, Tensor normed) {
  context.ops.matmul({.a = dlogits, .b = normed, .c = weight_->grad, .transpose_a = true, .accumulates = true});
}

}  // namespace

std::unique_ptr<Head> make_head(const LayerOptions& options, Param* tied_weight) { return std::make_unique<CrossEntropyHead>(options, tied_weight); }

}  // namespace echelon
