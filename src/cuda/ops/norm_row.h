// A row of LayerNorm or RMSNorm, by a team of threads (formulas: ops/reference/norms.cpp). For .cu files alone.
#pragma once

#include "cuda/ops/amax.h"
#include "cuda/ops/numbers.h"
#include "cuda/ops/rows.h"
#include "ops/operations/layer_norm.h"
#include "ops/operations/rms_norm.h"

namespace echelon::cuda {

/// RMSNorm has neither b nor mean.
template <class T>
struct Norm {
  T* x;
  const T *residual, *w, *b;  // residual: or null
  T* y;
  Wide<T>*mean, *rstd;
  Wide<T> eps, gain_offset;  // gain_offset: of RMSNorm
  bool rounds_before_gain;
  const Wide<T>* squares;  // of whole rows of `width`, of which x has a part; or null
  Wide<T> width;
  std::int64_t num_rows;
  int D;
};

/// RMSNorm's arguments come as LayerNorm's without b and mean. T: of the host.
template <class T>
[[nodiscard]] Norm<on_device<T>> norm_of(const LayerNormArgs& args, const RmsNormArgs& of_rms) {
  using A = Wide<on_device<T>>;
  const std::int64_t D = args.x.size(-1);
  return {.x = numbers<T>(args.x),
          .residual = numbers<T>(args.residual),
          .w = numbers<T>(args.w),
          .b = numbers<T>(args.b),
          .y = numbers<T>(args.y),
          .mean = numbers<A>(args.mean),
          .rstd = numbers<A>(args.rstd),
          .eps = static_cast<A>(args.eps),
          .gain_offset = static_cast<A>(of_rms.gain_offset),
          .rounds_before_gain = of_rms.rounds_before_gain,
          .squares = numbers<A>(of_rms.squares),
          .width = static_cast<A>(of_rms.squares.exists() ? of_rms.width : D),
          .num_rows = num_rows_of(args.x),
          .D = static_cast<int>(D)};
}
[[nodiscard]] inline LayerNormArgs as_layer_norm(const RmsNormArgs& args) {
  return {.x = args.x,
          .w = args.w,
          .b = {},
          .y = args.y,
          .mean = {},
          .rstd = args.rstd,
          .residual = args.residual,
          .eps = args.eps};
}

/// All threads of a block call it; a row that does not exist is none. `adds`: whether it may have a residual. Returns
/// the largest magnitude of what this thread writes of y.
template <class T, bool centres, bool adds, class Access>
__device__ __forceinline__ unsigned normalise_row(const Norm<T>& of, Team<Wide<T>>& team, std::int64_t row) {
  using A = Wide<T>;
  constexpr int width = Access::width;
  using Numbers = Pack<T, width>;
  const bool is_there = row < of.num_rows;
  const int D = is_there ? of.D : 0;
  T* const x = of.x + row * of.D;
  Kept<Access, T> kept = {};
  const auto x_at = [&](int k, int column) -> Numbers {
    return Access::keeps ? unpack(kept[k]) : load_pack<width>(x + column);
  };

  if constexpr (Access::keeps)
    for_packs<Access>(team, D, [&](int k, int column) { kept[k] = load_words<width>(x + column); });
  if (adds && of.residual != nullptr) {
    const T* const residual = of.residual + row * of.D;
    Kept<Access, T> kept_residual = {};
    if constexpr (Access::keeps)
      for_packs<Access>(team, D, [&](int k, int column) { kept_residual[k] = load_words<width>(residual + column); });
    for_packs<Access>(team, D, [&](int k, int column) {
      Numbers sum = x_at(k, column);
      const Numbers added = Access::keeps ? unpack(kept_residual[k]) : load_pack<width>(residual + column);
#pragma unroll
      for (int i = 0; i < width; ++i) sum.at[i] = narrow<T>(widen(sum.at[i]) + widen(added.at[i]));
      store_pack(x + column, sum);
      if constexpr (Access::keeps) kept[k] = pack_words(sum);
    });
  }

  A mean[1] = {0};
  if constexpr (centres) {
    for_packs<Access>(team, D, [&](int k, int column) {
      const Numbers x_k = x_at(k, column);
#pragma unroll
      for (int i = 0; i < width; ++i) mean[0] += widen(x_k.at[i]);
    });
    team.sum(mean);
    mean[0] /= static_cast<A>(of.D);
  }
  A squares[1] = {0};
  for_packs<Access>(team, D, [&](int k, int column) {
    const Numbers x_k = x_at(k, column);
#pragma unroll
    for (int i = 0; i < width; ++i) squares[0] += (widen(x_k.at[i]) - mean[0]) * (widen(x_k.at[i]) - mean[0]);
  });
  team.sum(squares);
  if (of.squares != nullptr && is_there) squares[0] = of.squares[row];
  const A rstd = A{1} / sqrt(squares[0] / of.width + of.eps);
  if (is_there && team.is_first()) {
    if constexpr (centres) of.mean[row] = mean[0];
    of.rstd[row] = rstd;
  }

  T* const y = of.y + row * of.D;
  unsigned largest = 0;
  for_packs<Access>(team, D, [&](int k, int column) {
    const Numbers x_k = x_at(k, column), w = load_pack<width>(of.w + column);
    Numbers b = {}, y_k;
    if constexpr (centres) b = load_pack<width>(of.b + column);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      A xhat = (widen(x_k.at[i]) - mean[0]) * rstd;
      if (!centres && of.rounds_before_gain) xhat = widen(narrow<T>(xhat));
      A y_i = xhat * (centres ? widen(w.at[i]) : of.gain_offset + widen(w.at[i]));
      if constexpr (centres) y_i += widen(b.at[i]);
      y_k.at[i] = narrow<T>(y_i);
    }
    store_pack(y + column, y_k);
    largest = larger_of(largest, y_k);
  });
  return largest;
}

}  // namespace echelon::cuda
