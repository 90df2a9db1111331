#include "ops/gpu/paired_operations.h"

#include <algorithm>
#include <initializer_list>

namespace echelon::cuda {
namespace {

using TensorList = std::initializer_list<Tensor>;

bool overlap_any(const Tensor& x, TensorList others) {
  return std::any_of(others.begin(), others.end(), [&](const Tensor& other) { return overlap(x, other); });
}
bool are_one(const Tensor& a, const Tensor& b) { return a.data == b.data && a.sizes == b.sizes; }

/// A row's norm may be written where the row's dy was.
template <class Gradient, class Norm>
bool norms_may_follow(const Gradient& first, const Norm& next, TensorList more_read, TensorList more_written) {
  const TensorList read = {first.x, first.w, first.rstd, first.dresidual, first.dx, first.dw};
  const auto is_apart = [&](const Tensor& written) {
    return !overlap_any(written, read) && !overlap_any(written, more_read);
  };
  return next.x.dtype == first.x.dtype && next.x.sizes == first.x.sizes && !next.residual.exists() &&
         keeps_row_beside_sums(first.x) && is_apart(next.y) &&
         (are_one(next.y, first.dy) || !overlap(next.y, first.dy)) &&
         std::all_of(more_written.begin(), more_written.end(), is_apart) && !overlap(next.x, first.dx) &&
         !overlap(next.w, first.dw);
}

bool may_follow(const LayerNormBackwardArgs& first, const LayerNormArgs& next) {
  return norms_may_follow(first, next, {first.mean, first.db}, {next.mean, next.rstd}) && !overlap(next.b, first.db);
}
bool may_follow(const RmsNormBackwardArgs& first, const RmsNormArgs& next) {
  return norms_may_follow(first, next, {}, {next.rstd}) && !next.squares.exists();
}
/// Every row leaves its loss.
bool may_follow(const RowExpArgs& first, const CrossEntropyArgs& next) {
  constexpr std::int64_t most_rows = std::int64_t{1} << 20;
  return are_one(next.max, first.max) && are_one(next.sum, first.sum) && are_one(next.targets, first.targets) &&
         are_one(next.target_logit, first.target_logit) && first.logits.size(0) <= most_rows &&
         !overlap(next.lse, first.logits);
}

}  // namespace

bool keeps_row_beside_sums(const Tensor& x) {
  constexpr std::int64_t bytes_of_pack = 16, most_bytes = 512 * 2 * bytes_of_pack;  // threads; packs of each
  const std::int64_t row_bytes = x.size(-1) * size_of(x.dtype);
  return row_bytes % bytes_of_pack == 0 && row_bytes <= most_bytes;
}

template <class First>
std::optional<Pair<First>> PairedOperations::completed(const typename Follower<First>::Args& args) {
  const auto* const first = std::get_if<First>(&held_);
  if (first == nullptr || !may_follow(*first, args)) return std::nullopt;
  Pair<First> pair = {*first, args};
  held_ = std::monostate();
  return pair;
}

std::optional<Pair<LayerNormBackwardArgs>> PairedOperations::completed_by(const LayerNormArgs& args) {
  return completed<LayerNormBackwardArgs>(args);
}
std::optional<Pair<RmsNormBackwardArgs>> PairedOperations::completed_by(const RmsNormArgs& args) {
  return completed<RmsNormBackwardArgs>(args);
}
std::optional<Pair<RowExpArgs>> PairedOperations::completed_by(const CrossEntropyArgs& args) {
  return completed<RowExpArgs>(args);
}

}  // namespace echelon::cuda
