#include "ops/check.h"
#include "ops/checker.h"

namespace echelon {
namespace {

void check_logits(const ArgumentChecker& must, const Tensor& logits, std::int64_t valid_columns) {
  must.dims("logits", logits, 2);
  must.computes("logits", logits);
  must.that(valid_columns >= 0 && valid_columns <= logits.size(1), "logits", logits,
            "have at least valid_columns columns");
}

void check_rows(const ArgumentChecker& must, const Tensor& logits, std::string_view name, const Tensor& t) {
  must.statistics(name, t, logits.size(0), logits.dtype);
}

void check_targets(const ArgumentChecker& must, const Tensor& targets, std::int64_t rows) {
  must.count("targets", targets, rows);
  must.dtype("targets", targets, DType::int32);
}

}  // namespace

void check(const RowExpArgs& args) {
  const ArgumentChecker must("row_exp");
  check_logits(must, args.logits, args.valid_columns);
  check_rows(must, args.logits, "max", args.max);
  check_rows(must, args.logits, "sum", args.sum);
  check_rows(must, args.logits, "target_logit", args.target_logit);
  check_targets(must, args.targets, args.logits.size(0));
}

void check(const CrossEntropyArgs& args) {
  const ArgumentChecker must("cross_entropy");
  must.that(args.max.dtype == DType::float32 || args.max.dtype == DType::float64, "max", args.max,
            "be float32 or float64");
  must.like("sum", args.sum, args.max);
  must.like("target_logit", args.target_logit, args.max);
  must.like("lse", args.lse, args.max);
  check_targets(must, args.targets, args.max.num_elements());
  must.scalars("loss_sum", args.loss_sum, 1);
}

void check(const CrossEntropyBackwardArgs& args) {
  const ArgumentChecker must("cross_entropy_backward");
  check_logits(must, args.exps, args.valid_columns);
  check_rows(must, args.exps, "max", args.max);
  check_rows(must, args.exps, "lse", args.lse);
  check_targets(must, args.targets, args.exps.size(0));
  must.count("dlogits", args.dlogits, args.exps.num_elements());
  const bool goes = args.exps.dtype == args.dlogits.dtype || args.exps.dtype == accumulate_dtype(args.dlogits.dtype);
  must.that(goes, "dlogits", args.dlogits, "have the dtype of exps, or one whose sums have it");
  if (args.loss_scale.exists()) must.scalars("loss_scale", args.loss_scale, 1);
}

void check(const RescaleSumsArgs& args) {
  const ArgumentChecker must("rescale_sums");
  must.that(args.sum.dtype == DType::float32 || args.sum.dtype == DType::float64, "sum", args.sum,
            "be float32 or float64");
  must.like("max", args.max, args.sum);
  must.like("row_max", args.row_max, args.sum);
}

}  // namespace echelon
