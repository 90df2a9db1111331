#include "nn/decoder/decode.h"

#include "base/error.h"
#include "nn/decoder/decoder_block.h"
#include "nn/decoder/embedding.h"
#include "nn/decoder/head.h"
#include "nn/decoder/stage.h"
#include "nn/head_split.h"
#include "nn/tensor_parallel.h"

namespace echelon {

Sizes kv_cache_sizes(const LayerOptions& options) {
  return {options.num_sequences, options.seq_len, head_split(options.model, options.tp, options.tp_rank).num_kv_heads,
          options.model.head_dim};
}

void Stage::decode(Context& context, const DecodeArgs& args) const {
  const std::int64_t num_new = args.tokens.num_elements() / args.num_sequences;
  if (embedding_ == nullptr || head_ == nullptr || args.caches.size() != blocks_.size() || splits_tokens(options_))
    throw Failure("decode takes a stage with all layers, a cache for each block, and no sequence parallelism");
  require(args.first_position + num_new <= options_.seq_len,
          "position {} is beyond the {} that the caches are made for", args.first_position + num_new, options_.seq_len);
  const Stack::Scope scope(context.workspace);
  const Tensor x = context.workspace.take(options_.dtype, {args.tokens.num_elements(), options_.model.hidden_size});
  embedding_->decode(context, args.tokens, x, args.num_sequences, args.first_position);
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    blocks_[i]->decode(context, x, x, args.caches[i], args.first_position);

  const Tensor last = context.workspace.take(x.dtype, {args.num_sequences, x.size(1)});
  for (std::int64_t b = 0; b < args.num_sequences; ++b)
    context.ops.copy(last.rows(b, 1), x.rows((b + 1) * num_new - 1, 1));
  head_->logits(context, last, args.logits);
}

void DecoderBlock::decode(Context& context, Tensor x, Tensor y, const KvCache& cache,
                          std::int64_t first_position) const {
  const Stack::Scope scope(context.workspace);
  const Tensor normed = context.workspace.take(x.dtype, x.sizes);
  const std::array<Tensor, 3> s = {x, context.workspace.take(x.dtype, x.sizes), y};
  for (const std::size_t i : {0, 1}) {
    const auto& [norm, branch, post_norm] = sublayers_[i];
    const Tensor read = is_parallel() ? x : s[i];
    if (norm) norm->apply(context, read, normed);
    const Tensor output = post_norm ? context.workspace.take(x.dtype, x.sizes) : s[i + 1];
    branch->decode(context, norm ? normed : read, output, cache, first_position);
    if (post_norm) post_norm->apply(context, output, s[i + 1]);
    if (multiplier() != 1.0) context.ops.scale(s[i + 1], multiplier());
    context.ops.add(s[i + 1], s[i + 1], s[i]);
  }
}

}  // namespace echelon
