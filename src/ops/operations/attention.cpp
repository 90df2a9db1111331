#include "ops/operations/attention.h"

#include "ops/checker.h"
#include "ops/description.h"
#include "ops/sample.h"
#include "types/rules.h"

#include <algorithm>
#include <cmath>

namespace echelon {
namespace {

void check_attention(const ArgumentChecker& must, const AttentionArgs& args) {
  must.dims("q", args.q, 4);
  must.dims("k", args.k, 4);
  must.computes("q", args.q);
  must.like("v", args.v, args.k);
  must.dtype("k", args.k, args.q.dtype);
  must.like("out", args.out, args.q);
  must.statistics("lse", args.lse, args.q.size(0) * args.q.size(2) * args.q.size(1), args.q.dtype);
  must.that(args.k.size(0) == args.q.size(0) && args.k.size(3) == args.q.size(3), "k", args.k,
            "have q's batch and head width");
  must.that(args.group >= 1 && args.first_head >= 0, "q", args.q, "have a positive group and no negative first_head");
  must.that((args.q.size(2) + args.first_head + args.group - 1) / args.group <= args.k.size(2), "k", args.k,
            "have a kv head for every head of q");
  for (const auto& [name, bound] : {std::pair("begin", args.mask.begin), std::pair("end", args.mask.end)}) {
    if (!bound.exists()) continue;
    must.dtype(name, bound, DType::int32);
    must.count(name, bound, args.q.size(0) * args.q.size(1));
  }
}

/// Heads, the pairs of each in all sequences, and the width, of attention or its gradients.
struct AttentionWork {
  std::int64_t heads, pairs, width;
};
template <class Args>
AttentionWork work_of(const Args& args) {
  return {args.q.size(2), num_visible_pairs(args.mask, args.q, args.k), args.q.size(3)};
}

/// As many queries as keys, with as many pairs as s.n(): a whole triangle.
std::int64_t sample_length(const SampleOperands& s) {
  return std::max<std::int64_t>(1, std::llround((std::sqrt(8.0 * static_cast<double>(s.n()) + 1) - 1) / 2));
}

SampleSizes usual_lengths() {
  const auto pairs = [](std::int64_t T) { return num_visible_pairs(T, T); };
  return {.m = {2, 8}, .n = {pairs(32), pairs(128), pairs(512)}, .k = {16, 64, 128}, .most_n = pairs(4096)};
}

/// Attention mixes positions and keeps sequences and heads apart, so a rank needs all positions of some heads of some
/// sequences. Where it has only some of a kv head's query heads (k, v replicated, q sharded along its heads), its dk
/// and dv are addends. Along cp it has its own queries, and the keys of one rank of the ring or, gathered, of all.
struct AttentionTypes {
  LayoutType out, lse, dkv;  // of one call
  LayoutType whole_lse;      // of attention to all keys; `out` of it has q's
};

/// Keys of the rank `distance` before or of all ranks, and what attention to them gives.
void set_context_types(const Inference& call, const Operand& q, const Operand& k, AttentionTypes& types) {
  constexpr TypeAxis axis = TypeAxis::cp;
  call.require_complete(q, axis);
  if (k[axis] == replicated_layout && q.is_sharded_along(axis, 0)) {
    types.out[axis] = types.lse[axis] = types.whole_lse[axis] = q[axis];
    types.dkv[axis] = partial_layout;
    return;
  }
  if (!q.is_sharded_along(axis, 0) || !k.is_sharded_along(axis, 0)) call.fail_together(q, k, axis);
  const int distance = k[axis].distance;
  const AxisLayout of_queries = {TensorPlacement::attended, outermost, 0, distance, 1};
  types.out[axis] = types.lse[axis] = of_queries;
  types.whole_lse[axis] = q[axis];
  types.dkv[axis] = of_queries;
  types.dkv[axis].distance = distance;
}

AttentionTypes attention_types(const Inference& call, const Operand& q, const Operand& k, const Operand& v,
                               const Tensor& lse) {
  AttentionTypes types;
  for (const TypeAxis axis : call.axes()) {
    if (k[axis] != v[axis]) call.fail_together(k, v, axis);
    for (const Operand& x : {q, k})
      if (x[axis].order == RowOrder::by_rank)
        call.fail(fmt::format("{}, but rows are attended to in ascending order", call.words(x, axis)));
    if (axis == TypeAxis::cp) {
      set_context_types(call, q, k, types);
      continue;
    }
    for (const Operand& x : {q, k, v}) require_whole_rows_of_heads(call, x, axis);
    const bool heads_are_cut = q.is_sharded_along(axis, dim_of_heads),
               shares_kv = heads_are_cut && k[axis] == replicated_layout;
    const bool kv_heads_are_cut = heads_are_cut && k.is_sharded_along(axis, dim_of_heads);
    if (q[axis].copies > 1) call.fail(fmt::format("{}, and is attended with", call.words(q, axis)));
    if (!shares_kv && !kv_heads_are_cut && q[axis] != k[axis]) call.fail_together(q, k, axis);
    types.out[axis] = q[axis];
    types.lse[axis] = types.whole_lse[axis] = heads_are_cut ? sharded_along(lse, 1) : q[axis];
    types.dkv[axis] = shares_kv ? partial_layout : k[axis].copies > 1 ? as_addends(k[axis]) : k[axis];
  }
  return types;
}

/// A rank needs the ranges of its own sequences, at all their positions, in these keys.
void require_ranges_of(const Inference& call, const Operand& q, const Operand& k, const AttentionMask& mask) {
  for (const Tensor& bound : existing({mask.begin, mask.end})) {
    const Operand range = call.read("the range of keys", bound);
    for (const TypeAxis axis : call.axes()) {
      if (axis == TypeAxis::cp) {
        const Operand& of = k[axis] == replicated_layout ? q : k;
        if (range[axis] != of[axis]) call.fail_together(range, of, axis);
        continue;
      }
      const bool both_are_cut =
          q.is_sharded_along(axis, dim_of_sequences) && range.is_sharded_along(axis, dim_of_sequences);
      if (!both_are_cut) call.require_whole(range, axis);
      if (!both_are_cut && q.is_sharded_along(axis, dim_of_sequences)) call.fail_together(range, q, axis);
    }
  }
}

void require_type(const Inference& call, const Operand& x, const LayoutType& type) {
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(x, axis);
    if (x[axis] != type[axis])
      call.fail(fmt::format("{}, where it ought to be {}", call.words(x, axis), describe(type[axis], x.tensor)));
  }
}

}  // namespace

std::int64_t num_visible_pairs(std::int64_t num_queries, std::int64_t num_keys) {
  // The last queries see one key less each, down to one.
  const std::int64_t seeing = std::min(num_queries, num_keys);
  return seeing * (2 * num_keys - seeing + 1) / 2;
}

std::int64_t num_visible_pairs(const AttentionMask& mask, const Tensor& q, const Tensor& k) {
  const bool is_triangle = mask.is_causal() && mask.num_pairs == 0;
  return is_triangle ? q.size(0) * num_visible_pairs(q.size(1), k.size(1)) : mask.num_pairs;
}

std::int64_t count_seen_pairs(const AttentionMask& mask, const Tensor& q, const Tensor& k) {
  if (!mask.has_ranges()) return num_visible_pairs(mask, q, k);
  const std::int64_t Tq = q.size(1), queries = q.size(0) * Tq;
  const std::int32_t* const begin = mask.begin.exists() ? mask.begin.as<std::int32_t>() : nullptr;
  const std::int32_t* const end = mask.is_causal() ? nullptr : mask.end.as<std::int32_t>();
  std::int64_t pairs = 0;
  for (std::int64_t i = 0; i < queries; ++i) {
    const std::int64_t first = begin != nullptr ? begin[i] : 0,
                       last = end != nullptr ? end[i] : i % Tq + 1 + k.size(1) - Tq;
    pairs += std::max<std::int64_t>(last - first, 0);
  }
  return pairs;
}

void check(const AttentionArgs& args) { check_attention(ArgumentChecker("attention"), args); }
// Two dot products per visible pair: q k^T and p v.
OpCost cost(const AttentionArgs& args) {
  const auto [heads, pairs, width] = work_of(args);
  const std::int64_t bytes =
      bytes_of(args.q, args.k, args.v, args.out, args.lse) + bytes_if(args.mask.begin) + bytes_if(args.mask.end);
  return {.m = args.q.size(0) * heads,
          .n = mean_visible_pairs(args.mask, args.q, args.k),
          .k = width,
          .flops = 4 * heads * pairs * width,
          .bytes = bytes};
}
Operands operands_of(const AttentionArgs& args) {
  return {args.q.dtype, existing({args.q, args.k, args.v, args.mask.begin, args.mask.end}), {args.out, args.lse}};
}
void infer(Inference& call, const AttentionArgs& args) {
  const Operand q = call.read("q", args.q);
  const Operand k = call.read("k", args.k);
  const AttentionTypes types = attention_types(call, q, k, call.read("v", args.v), args.lse);
  require_ranges_of(call, q, k, args.mask);
  call.write(args.out, types.out);
  call.write(args.lse, types.lse);
}
void sample(SampleOperands& s, AttentionArgs& args) {
  const std::int64_t T = sample_length(s), H = s.m(), C = s.k();
  const Sizes heads = {1, T, H, C};
  args = {.q = s.x(heads),
          .k = s.x(heads),
          .v = s.x(heads),
          .out = s.x(heads),
          .lse = s.sums({1, H, T}),
          .scale = 1 / std::sqrt(static_cast<double>(C))};
}
SampleSizes usual_sizes(const AttentionArgs& /*args*/) { return usual_lengths(); }

void check(const AttentionBackwardArgs& args) {
  const ArgumentChecker must("attention_backward");
  check_attention(must, {.q = args.q,
                         .k = args.k,
                         .v = args.v,
                         .out = args.out,
                         .lse = args.lse,
                         .group = args.group,
                         .first_head = args.first_head,
                         .mask = args.mask});
  must.like("dout", args.dout, args.q);
  must.like("dq", args.dq, args.q);
  must.like("dk", args.dk, args.k);
  must.like("dv", args.dv, args.k);
  must.like("delta", args.delta, args.lse);
  if (args.dq_sums.exists()) {
    must.dtype("dq_sums", args.dq_sums, accumulate_dtype(args.q.dtype));
    must.count("dq_sums", args.dq_sums, args.q.num_elements());
  }
  if (!args.scratch.exists()) return;
  must.dtype("scratch", args.scratch, DType::int32);
  must.count("scratch", args.scratch, attention_scratch_size(args.q, args.k));
}
// Five dot products per visible pair: q k^T again, dout v^T, p^T dout, ds k, ds^T q.
OpCost cost(const AttentionBackwardArgs& args) {
  const auto [heads, pairs, width] = work_of(args);
  const std::int64_t read = bytes_of(args.q, args.k, args.v, args.out, args.lse, args.dout) +
                            bytes_if(args.mask.begin) + bytes_if(args.mask.end),
                     written = bytes_of(args.dq, args.dk, args.dv);
  return {.m = args.q.size(0) * heads,
          .n = mean_visible_pairs(args.mask, args.q, args.k),
          .k = width,
          .flops = 10 * heads * pairs * width,
          .bytes = read + written + 2 * bytes_of(args.delta)};
}
Operands operands_of(const AttentionBackwardArgs& args) {
  return {args.q.dtype,
          existing({args.q, args.k, args.v, args.out, args.lse, args.dout, args.mask.begin, args.mask.end}),
          existing({args.dq, args.dk, args.dv, args.delta, args.scratch, args.dq_sums})};
}
void infer(Inference& call, const AttentionBackwardArgs& args) {
  const Operand q = call.read("q", args.q);
  const Operand k = call.read("k", args.k);
  const AttentionTypes types = attention_types(call, q, k, call.read("v", args.v), args.lse);
  require_ranges_of(call, q, k, args.mask);
  require_type(call, call.read("out", args.out), q.piece.type);
  require_type(call, call.read("dout", args.dout), q.piece.type);
  require_type(call, call.read("lse", args.lse), types.whole_lse);
  call.write(args.delta, types.whole_lse);
  call.write(args.dq, types.out);
  call.write(args.dk, types.dkv);
  call.write(args.dv, types.dkv);
}
void sample(SampleOperands& s, AttentionBackwardArgs& args) {
  const std::int64_t T = sample_length(s), H = s.m(), C = s.k();
  const Sizes heads = {1, T, H, C};
  args = {.q = s.x(heads),
          .k = s.x(heads),
          .v = s.x(heads),
          .out = s.x(heads),
          .lse = s.sums({1, H, T}),
          .dout = s.x(heads),
          .dq = s.x(heads),
          .dk = s.x(heads),
          .dv = s.x(heads),
          .delta = s.sums({1, H, T}),
          .scale = 1 / std::sqrt(static_cast<double>(C))};
  if (args.lse.data == nullptr) return;
  if (args.lse.dtype == DType::float64) std::fill_n(args.lse.as<double>(), args.lse.num_elements(), 5.0);
  if (args.lse.dtype == DType::float32) std::fill_n(args.lse.as<float>(), args.lse.num_elements(), 5.0F);
}
SampleSizes usual_sizes(const AttentionBackwardArgs& /*args*/) { return usual_lengths(); }

void check(const MergeAttentionArgs& args) {
  const ArgumentChecker must("merge_attention");
  must.dims("part", args.part, 4);
  must.computes("part", args.part);
  must.count("out", args.out, args.part.num_elements());
  must.gradient("out", args.out, args.part.dtype);
  must.statistics("lse", args.lse, args.part.size(0) * args.part.size(2) * args.part.size(1), args.part.dtype);
  must.like("part_lse", args.part_lse, args.lse);
}
// Two multiplications and a sum per element; the factors are one per row.
OpCost cost(const MergeAttentionArgs& args) {
  return cost_by_rows(args.part, 3, 2 * bytes_of(args.out, args.lse) + bytes_of(args.part, args.part_lse));
}
Operands operands_of(const MergeAttentionArgs& args) {
  return {args.part.dtype, {args.out, args.lse, args.part, args.part_lse}, {}};
}
// Row by row: a row of lse is on the ranks that have its row of out, and has seen the same blocks.
void infer(Inference& call, const MergeAttentionArgs& args) {
  const Operand out = call.read("out", args.out), lse = call.read("lse", args.lse), part = call.read("part", args.part),
                part_lse = call.read("part_lse", args.part_lse);
  LayoutType merged = out.piece.type, merged_lse = lse.piece.type;
  for (const TypeAxis axis : call.axes()) {
    if (axis == TypeAxis::cp) {
      if (out[axis] != lse[axis]) call.fail_together(out, lse, axis);
      if (part[axis] != part_lse[axis]) call.fail_together(part, part_lse, axis);
      const auto both = united(out[axis], part[axis], call.ranks().degree(axis));
      if (!both) call.fail_together(out, part, axis);
      merged[axis] = merged_lse[axis] = *both;
      continue;
    }
    require_whole_rows_of_heads(call, out, axis);
    if (part[axis] != out[axis]) call.fail_together(part, out, axis);
    call.require_complete(part_lse, axis);
    if (part_lse[axis] != lse[axis]) call.fail_together(part_lse, lse, axis);
  }
  call.write(args.out, merged);
  call.write(args.lse, merged_lse);
}
void sample(SampleOperands& s, MergeAttentionArgs& args) {
  const Sizes heads = {1, s.m(), 1, s.n()};
  args = {.out = s.x(heads), .lse = s.of_rows(), .part = s.x(heads), .part_lse = s.of_rows()};
}
SampleSizes usual_sizes(const MergeAttentionArgs& /*args*/) { return {}; }

}  // namespace echelon
