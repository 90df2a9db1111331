// Rotary positions, causal attention, and how attention to two parts of the keys is joined. With s_ij = scale q_i . k_j
// over the visible keys j and p_ij = exp(s_ij - lse_i):
//     lse_i = log sum_j exp s_ij          out_i = sum_j p_ij v_j
//     delta_i = dout_i . out_i            ds_ij = p_ij (dout_i . v_j - delta_i)
//     dq_i = scale sum_j ds_ij k_j        dk_j = scale sum_i ds_ij q_i        dv_j = sum_i p_ij dout_i
#include "ops/reference/reference_ops.h"
#include "ops/visit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace echelon {
namespace {

/// The cosine and sine of pair i of a row [b, t].
template <class A>
std::pair<A, A> turn_of(const RopeArgs& args, std::int64_t row, std::int64_t i) {
  if (args.has_tables()) {
    const std::int64_t at = (args.first_position + row % args.x.size(1)) * args.cos.size(1) + i;
    return {args.cos.as<A>()[at], args.sin.as<A>()[at]};
  }
  const double angle = static_cast<double>(args.positions.as<std::int32_t>()[row]) * args.frequencies.as<double>()[i];
  const double scale = args.scale_at(args.positions.as<std::int32_t>()[row]);
  return {static_cast<A>(scale * std::cos(angle)), static_cast<A>(scale * std::sin(angle))};
}

// Rotates the pair (x1, x2) by the angle of its position: (x1 cos - x2 sin, x1 sin + x2 cos).
template <class T, class A = Accumulate<T>>
void rotate(const RopeArgs& args) {
  const std::int64_t N = args.x.size(0) * args.x.size(1), H = args.x.size(2), C = args.x.size(3),
                     half = args.num_pairs();
  for (std::int64_t row = 0; row < N * H; ++row) {
    const T* x = args.x.as<T>() + row * C;
    T* y = args.y.as<T>() + row * C;
    for (std::int64_t i = 0; i < half; ++i) {
      const auto [cos, sine] = turn_of<A>(args, row / H, i);
      const A sin = args.inverse ? -sine : sine, x1 = to<A>(x[i]), x2 = to<A>(x[i + half]);
      y[i] = to<T>(x1 * cos - x2 * sin);
      y[i + half] = to<T>(x1 * sin + x2 * cos);
    }
  }
}

/// The addresses of the vectors of one head of one sequence, and the keys that a query sees.
template <class T, class A = Accumulate<T>>
struct HeadView {
  const AttentionArgs& args;
  std::int64_t b, h;
  std::int64_t Tq = args.q.size(1), Tk = args.k.size(1), H = args.q.size(2), K = args.k.size(2), C = args.q.size(3);
  std::int64_t kv_head = (h + args.first_head) / args.group;

  [[nodiscard]] std::int64_t query_offset(std::int64_t i) const { return ((b * Tq + i) * H + h) * C; }
  [[nodiscard]] std::int64_t key_offset(std::int64_t j) const { return ((b * Tk + j) * K + kv_head) * C; }
  /// Query i sees the keys from first_visible(i) up to, but not including, end_visible(i); none if that is not above.
  [[nodiscard]] std::int64_t first_visible(std::int64_t i) const {
    return args.mask.begin.exists() ? args.mask.begin.template as<std::int32_t>()[b * Tq + i] : 0;
  }
  [[nodiscard]] std::int64_t end_visible(std::int64_t i) const {
    return args.mask.end.exists() ? args.mask.end.template as<std::int32_t>()[b * Tq + i] : i + Tk - Tq + 1;
  }
  [[nodiscard]] std::int64_t row(std::int64_t i) const { return (b * H + h) * Tq + i; }  // of lse and delta
  [[nodiscard]] A dot(const T* x, const T* y) const {
    A sum = 0;
    for (std::int64_t c = 0; c < C; ++c) sum += to<A>(x[c]) * to<A>(y[c]);
    return sum;
  }
  [[nodiscard]] A score(std::int64_t i, std::int64_t j) const {
    const A score = static_cast<A>(args.scale) * dot(args.q.as<T>() + query_offset(i), args.k.as<T>() + key_offset(j));
    const A cap = static_cast<A>(args.soft_cap);
    return cap > 0 ? cap * std::tanh(score / cap) : score;
  }
};

template <class T, class A = Accumulate<T>>
void attend(const HeadView<T>& head) {
  for (std::int64_t i = 0; i < head.Tq; ++i) {
    const std::int64_t first = head.first_visible(i), end = head.end_visible(i);
    A max = -std::numeric_limits<A>::infinity(), sum = 0;
    for (std::int64_t j = first; j < end; ++j) max = std::max(max, head.score(i, j));
    for (std::int64_t j = first; j < end; ++j) sum += std::exp(head.score(i, j) - max);
    const A lse = first >= end ? max : max + std::log(sum);
    head.args.lse.template as<A>()[head.row(i)] = lse;
    for (std::int64_t c = 0; c < head.C; ++c) {
      A out = 0;
      for (std::int64_t j = first; j < end; ++j)
        out += std::exp(head.score(i, j) - lse) * to<A>(head.args.v.template as<T>()[head.key_offset(j) + c]);
      head.args.out.template as<T>()[head.query_offset(i) + c] = to<T>(out);
    }
  }
}

/// Adds one query head's part to the gradients in accumulate format.
template <class T, class A = Accumulate<T>>
void attend_backward(const HeadView<T>& head, const AttentionBackwardArgs& args, std::vector<A>& dk,
                     std::vector<A>& dv) {
  const A scale = static_cast<A>(args.scale);
  for (std::int64_t i = 0; i < head.Tq; ++i) {
    const T *q = args.q.as<T>() + head.query_offset(i), *dout = args.dout.as<T>() + head.query_offset(i);
    const A delta = head.dot(dout, args.out.as<T>() + head.query_offset(i));
    args.delta.as<A>()[head.row(i)] = delta;
    std::vector<A> dq(static_cast<std::size_t>(head.C));
    for (std::int64_t j = head.first_visible(i); j < head.end_visible(i); ++j) {
      const T* k = args.k.as<T>() + head.key_offset(j);
      const A score = head.score(i, j), p = std::exp(score - args.lse.as<A>()[head.row(i)]);
      A ds = p * (head.dot(dout, args.v.as<T>() + head.key_offset(j)) - delta);
      if (const A share = args.soft_cap > 0 ? score / static_cast<A>(args.soft_cap) : A{0}; share != 0)
        ds *= 1 - share * share;
      for (std::int64_t c = 0; c < head.C; ++c) {
        dq[static_cast<std::size_t>(c)] += scale * ds * to<A>(k[c]);
        dk[static_cast<std::size_t>(head.key_offset(j) + c)] += scale * ds * to<A>(q[c]);
        dv[static_cast<std::size_t>(head.key_offset(j) + c)] += p * to<A>(dout[c]);
      }
    }
    for (std::int64_t c = 0; c < head.C; ++c)
      args.dq.as<T>()[head.query_offset(i) + c] = to<T>(dq[static_cast<std::size_t>(c)]);
  }
}

template <class T, class A = Accumulate<T>>
void attention_gradients(const AttentionBackwardArgs& args) {
  const AttentionArgs forward{.q = args.q,
                              .k = args.k,
                              .v = args.v,
                              .out = args.out,
                              .lse = args.lse,
                              .scale = args.scale,
                              .group = args.group,
                              .first_head = args.first_head,
                              .mask = args.mask,
                              .soft_cap = args.soft_cap};
  std::vector<A> dk(static_cast<std::size_t>(args.k.num_elements())), dv(dk.size());
  for (std::int64_t b = 0; b < args.q.size(0); ++b)
    for (std::int64_t h = 0; h < args.q.size(2); ++h) attend_backward<T>({forward, b, h}, args, dk, dv);
  for (std::size_t i = 0; i < dk.size(); ++i) {
    args.dk.as<T>()[i] = to<T>(dk[i]);
    args.dv.as<T>()[i] = to<T>(dv[i]);
  }
}

template <class T, class O, class A = Accumulate<T>>
void merge(const MergeAttentionArgs& args) {
  const std::int64_t B = args.part.size(0), seq_len = args.part.size(1), H = args.part.size(2), C = args.part.size(3);
  for (std::int64_t row = 0; row < B * seq_len * H; ++row) {
    const std::int64_t h = row % H, i = row / H % seq_len, b = row / H / seq_len;
    A& lse = args.lse.as<A>()[(b * H + h) * seq_len + i];
    const A part_lse = args.part_lse.as<A>()[(b * H + h) * seq_len + i], max = std::max(lse, part_lse);
    constexpr A lowest = -std::numeric_limits<A>::infinity();
    if (lse == lowest && part_lse == lowest) continue;
    const A merged = max + std::log(std::exp(lse - max) + std::exp(part_lse - max)), factor = std::exp(lse - merged),
            of_part = std::exp(part_lse - merged);
    for (std::int64_t c = 0; c < C; ++c) {
      O& out = args.out.as<O>()[row * C + c];
      out = to<O>(factor * to<A>(out) + of_part * to<A>(args.part.as<T>()[row * C + c]));
    }
    lse = merged;
  }
}

}  // namespace

void ReferenceOps::compute(const RopeArgs& args) {
  visit_float(args.x.dtype, [&](auto t) { rotate<decltype(t)>(args); });
}

void ReferenceOps::compute(const AttentionArgs& args) {
  visit_float(args.q.dtype, [&](auto t) {
    for (std::int64_t b = 0; b < args.q.size(0); ++b)
      for (std::int64_t h = 0; h < args.q.size(2); ++h) attend<decltype(t)>({args, b, h});
  });
}

void ReferenceOps::compute(const AttentionBackwardArgs& args) {
  visit_float(args.q.dtype, [&](auto t) { attention_gradients<decltype(t)>(args); });
}

void ReferenceOps::compute(const MergeAttentionArgs& args) {
  visit_pair(args.part.dtype, args.out.dtype, [&](auto t, auto o) { merge<decltype(t), decltype(o)>(args); });
}

}  // namespace echelon
