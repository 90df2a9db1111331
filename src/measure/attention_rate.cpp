#include "measure/attention_rate.h"

#include "measure/fastest.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/description.h"
#include "tensor/arena.h"

#include <cmath>

namespace echelon {
namespace {

constexpr std::int64_t seq_len = 4096, head_dim = 64;

/// One rank of a sequence that has no other.
class LongSequence {
 public:
  LongSequence(DType dtype, Ops& ops) : ops_(ops) {
    Stack stack = arena_.region(0, arena_.num_bytes());
    const auto take = [&](DType of, const Sizes& sizes) { return stack.take(of, sizes); };
    for (Tensor* x : {&q_, &k_, &v_, &out_, &dout_, &dq_, &dk_, &dv_}) *x = take(dtype, {1, seq_len, 1, head_dim});
    for (Tensor* x : {&lse_, &delta_}) *x = take(accumulate_dtype(dtype), {1, 1, seq_len});
    for (Tensor* x : {&begin_, &end_}) *x = take(DType::int32, {1, seq_len});
    for (const Tensor& x : {q_, k_, v_, dout_}) ops.fill(x, 0.5);
    for (std::int64_t query = 0; query < seq_len; ++query) {
      begin_.as<std::int32_t>()[query] = 0;
      end_.as<std::int32_t>()[query] = static_cast<std::int32_t>(query + 1);
    }
  }

  void run() {
    ops_.attention(forward());
    ops_.attention_backward(backward());
  }
  [[nodiscard]] double flops() const { return static_cast<double>(cost(forward()).flops + cost(backward()).flops); }

 private:
  [[nodiscard]] AttentionMask mask() const {
    return {.begin = begin_, .end = end_, .num_pairs = num_visible_pairs(seq_len, seq_len)};
  }
  [[nodiscard]] AttentionArgs forward() const {
    return {.q = q_, .k = k_, .v = v_, .out = out_, .lse = lse_, .scale = scale_, .mask = mask()};
  }
  [[nodiscard]] AttentionBackwardArgs backward() const {
    return {.q = q_,
            .k = k_,
            .v = v_,
            .out = out_,
            .lse = lse_,
            .dout = dout_,
            .dq = dq_,
            .dk = dk_,
            .dv = dv_,
            .delta = delta_,
            .scale = scale_,
            .mask = mask()};
  }

  Ops& ops_;
  Arena arena_{(8 * head_dim + 4) * seq_len * std::int64_t{sizeof(double)}};
  Tensor q_, k_, v_, out_, dout_, dq_, dk_, dv_, lse_, delta_, begin_, end_;
  double scale_ = 1 / std::sqrt(static_cast<double>(head_dim));
};

}  // namespace

AttentionRate attention_rate(const std::optional<ProductChoice>& products) {
  return [products](DType dtype, int num_threads, double seconds) {
    const auto ops = make_cpu_ops({.num_threads = num_threads, .products = products});
    LongSequence sequence(dtype, *ops);
    sequence.run();  // touches the memory
    return sequence.flops() / fastest(seconds, [&] { sequence.run(); });
  };
}

}  // namespace echelon
