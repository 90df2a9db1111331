#include "ops/check.h"
#include "ops/checker.h"

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
  if (!args.mask.starts.exists()) return;
  must.dtype("starts", args.mask.starts, DType::int32);
  must.count("starts", args.mask.starts, args.q.size(0) * args.q.size(1));
}

}  // namespace

void check(const AttentionArgs& args) { check_attention(ArgumentChecker("attention"), args); }

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
  if (!args.scratch.exists()) return;
  must.dtype("scratch", args.scratch, DType::int32);
  must.count("scratch", args.scratch, attention_scratch_size(args.q, args.k));
}

void check(const MergeAttentionArgs& args) {
  const ArgumentChecker must("merge_attention");
  must.dims("part", args.part, 4);
  must.computes("part", args.part);
  must.count("out", args.out, args.part.num_elements());
  must.gradient("out", args.out, args.part.dtype);
  must.statistics("lse", args.lse, args.part.size(0) * args.part.size(2) * args.part.size(1), args.part.dtype);
  must.like("part_lse", args.part_lse, args.lse);
}

}  // namespace echelon
