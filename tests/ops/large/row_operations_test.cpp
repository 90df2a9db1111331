// Operations on rows of tensors of more than 2^31 elements: rows before, at and after that place get the bits that the
// same operation gives of those rows alone. ECHELON_SIZES=long runs them; otherwise tensors have 2^17 elements.
#include "large/large_tensor.h"
#include "ops/cpu/cpu_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <numeric>

namespace echelon::testing {
namespace {

constexpr std::int64_t D = 4096;  // of most rows

// Claim (plans): Operations on CPUs, and collectives of threads, have no limit of 2^31 elements: rows
//   before, at and after it are what the same operation gives of those rows alone.
// Bound: equal bits in bfloat16 and float32; attention 1e-2.
// Tests: LargeSizes
// Run: ECHELON_SIZES=long build/release/test_large_sizes
class LargeSizes : public ::testing::Test {
 protected:
  /// Compares rows of `x` after an operation with those that `run(window)` returns.
  static void expect_rows(const Tensor& x, const std::vector<RowWindow>& places,
                          const std::function<SmallTensor(RowWindow)>& run) {
    for (const RowWindow& window : places)
      EXPECT_TRUE(has_same_bytes(x.rows(window.first, window.count), run(window))) << "rows from " << window.first;
  }
  /// Runs an operation in place on `x`, and on copies of its rows alone.
  void expect_in_place(LargeTensor& x, const std::function<void(const Tensor&, RowWindow)>& run) const {
    x.keep(windows);
    std::vector<SmallTensor> copies;
    for (const RowWindow& window : windows) copies.emplace_back(x->rows(window.first, window.count));
    run(x, {0, x->size(0)});
    for (std::size_t i = 0; i < windows.size(); ++i) {
      run(copies[i], windows[i]);
      EXPECT_TRUE(has_same_bytes(x->rows(windows[i].first, windows[i].count), copies[i]))
          << "rows from " << windows[i].first;
    }
  }
  static Tensor rows(const Tensor& x, RowWindow window) { return x.rows(window.first, window.count); }

  const std::int64_t N = num_large_rows(D);
  const std::vector<RowWindow> windows = windows_of(D);
  const Sizes sizes = {N, D};
  const std::unique_ptr<Ops> ops = make_cpu_ops({.num_threads = 2});
};

Sizes rows_of(RowWindow window) { return {window.count, D}; }

// What an offset would read that lost its upper bits.
TEST_F(LargeSizes, HaveOtherValuesPastTheBoundary) {
  for (const DType dtype : {DType::bfloat16, DType::float32}) {
    const LargeTensor x(dtype, sizes, 1);
    for (const std::int64_t bits : {std::int64_t{1}, std::int64_t{2}, std::int64_t{4}})
      EXPECT_FALSE(has_same_bytes(x->rows(N - 3, 3), x->rows(N - 3 - num_small_elements() / D / bits, 3)));
  }
}

TEST_F(LargeSizes, Swiglu) {
  const LargeTensor gate(DType::bfloat16, sizes, 1), up(DType::bfloat16, sizes, 2), dy(DType::bfloat16, sizes, 3);
  LargeTensor y(DType::bfloat16, sizes, 4), dgate(DType::bfloat16, sizes, 5), dup(DType::bfloat16, sizes, 6);
  ops->swiglu({.gate = gate, .up = up, .y = y.clear(windows)});
  const auto forward = [&](RowWindow window) {
    SmallTensor alone(DType::bfloat16, rows_of(window));
    ops->swiglu({.gate = rows(gate, window), .up = rows(up, window), .y = alone});
    return alone;
  };
  expect_rows(y, windows, forward);
  ops->swiglu_backward({.dy = dy,
                        .gate = gate,
                        .up = up,
                        .dgate = dgate.clear(windows),
                        .dup = dup.clear(windows),
                        .y = y.clear(windows)});
  for (const bool is_of_gate : {false, true})
    expect_rows(is_of_gate ? dgate : dup, windows, [&](RowWindow window) {
      SmallTensor of_gate(DType::bfloat16, rows_of(window)), of_up(DType::bfloat16, rows_of(window));
      ops->swiglu_backward(
          {.dy = rows(dy, window), .gate = rows(gate, window), .up = rows(up, window), .dgate = of_gate, .dup = of_up});
      return is_of_gate ? std::move(of_gate) : std::move(of_up);
    });
  expect_rows(y, windows, forward);
}

TEST_F(LargeSizes, Gelu) {
  const LargeTensor x(DType::bfloat16, sizes, 1), dy(DType::bfloat16, sizes, 2);
  LargeTensor y(DType::bfloat16, sizes, 3), dx(DType::bfloat16, sizes, 4);
  const SmallTensor bias = small_values(DType::bfloat16, {D}, 5);
  ops->gelu({.x = x, .y = y.clear(windows), .bias = bias});
  expect_rows(y, windows, [&](RowWindow window) {
    SmallTensor alone(DType::bfloat16, rows_of(window));
    ops->gelu({.x = rows(x, window), .y = alone, .bias = bias});
    return alone;
  });
  ops->gelu_backward({.dy = dy, .x = x, .dx = dx.clear(windows), .bias = bias});
  expect_rows(dx, windows, [&](RowWindow window) {
    SmallTensor alone(DType::bfloat16, rows_of(window));
    ops->gelu_backward({.dy = rows(dy, window), .x = rows(x, window), .dx = alone, .bias = bias});
    return alone;
  });
}

TEST_F(LargeSizes, RmsNorm) {
  const LargeTensor x(DType::bfloat16, sizes, 1), dy(DType::bfloat16, sizes, 2);
  LargeTensor y(DType::bfloat16, sizes, 3);
  const SmallTensor w = small_values(DType::bfloat16, {D}, 4), rstd(DType::float32, {N});
  ops->rms_norm({.x = x, .w = w, .y = y.clear(windows), .rstd = rstd});
  expect_rows(y, windows, [&](RowWindow window) {
    SmallTensor alone(DType::bfloat16, rows_of(window)), rstd_alone(DType::float32, {window.count});
    ops->rms_norm({.x = rows(x, window), .w = w, .y = alone, .rstd = rstd_alone});
    EXPECT_TRUE(has_same_bytes(rows(rstd, window), rstd_alone));
    return alone;
  });
  ops->rms_norm_backward_input({.dy = dy, .x = x, .w = w, .rstd = rstd, .dx = y.clear(windows)});
  expect_rows(y, windows, [&](RowWindow window) {
    SmallTensor alone(DType::bfloat16, rows_of(window));
    ops->rms_norm_backward_input(
        {.dy = rows(dy, window), .x = rows(x, window), .w = w, .rstd = rows(rstd, window), .dx = alone});
    return alone;
  });
}

TEST_F(LargeSizes, LayerNorm) {
  const LargeTensor x(DType::bfloat16, sizes, 1), dy(DType::bfloat16, sizes, 2);
  LargeTensor y(DType::bfloat16, sizes, 3);
  const SmallTensor w = small_values(DType::bfloat16, {D}, 4), b = small_values(DType::bfloat16, {D}, 5),
                    mean(DType::float32, {N}), rstd(DType::float32, {N});
  ops->layer_norm({.x = x, .w = w, .b = b, .y = y.clear(windows), .mean = mean, .rstd = rstd});
  expect_rows(y, windows, [&](RowWindow window) {
    SmallTensor alone(DType::bfloat16, rows_of(window)), mean_alone(DType::float32, {window.count}),
        rstd_alone(DType::float32, {window.count});
    ops->layer_norm({.x = rows(x, window), .w = w, .b = b, .y = alone, .mean = mean_alone, .rstd = rstd_alone});
    EXPECT_TRUE(has_same_bytes(rows(mean, window), mean_alone));
    return alone;
  });
  ops->layer_norm_backward_input({.dy = dy, .x = x, .w = w, .mean = mean, .rstd = rstd, .dx = y.clear(windows)});
  expect_rows(y, windows, [&](RowWindow window) {
    SmallTensor alone(DType::bfloat16, rows_of(window));
    ops->layer_norm_backward_input({.dy = rows(dy, window),
                                    .x = rows(x, window),
                                    .w = w,
                                    .mean = rows(mean, window),
                                    .rstd = rows(rstd, window),
                                    .dx = alone});
    return alone;
  });
}

TEST_F(LargeSizes, SumsAndConversions) {
  const LargeTensor a(DType::bfloat16, sizes, 1), b(DType::bfloat16, sizes, 2);
  LargeTensor y(DType::bfloat16, sizes, 3), wide(DType::float32, sizes, 4);
  ops->add(y.clear(windows), a, b);
  expect_rows(y, windows, [&](RowWindow window) {
    SmallTensor alone(DType::bfloat16, rows_of(window));
    ops->add(alone, rows(a, window), rows(b, window));
    return alone;
  });
  ops->copy(wide.clear(windows), a);
  expect_rows(wide, windows, [&](RowWindow window) {
    SmallTensor alone(DType::float32, rows_of(window));
    ops->copy(alone, rows(a, window));
    return alone;
  });
  ops->copy(y.clear(windows), wide);
  expect_rows(y, windows, [&](RowWindow window) { return SmallTensor(rows(a, window)); });
}

TEST_F(LargeSizes, InPlace) {
  LargeTensor x(DType::bfloat16, sizes, 1);
  const LargeTensor limited(DType::bfloat16, sizes, 2);
  const SmallTensor bias = small_values(DType::bfloat16, {D}, 3);
  expect_in_place(x, [&](const Tensor& at, RowWindow) { ops->add_bias(at, bias); });
  expect_in_place(x, [&](const Tensor& at, RowWindow) { ops->scale(at, 0.5); });
  expect_in_place(x, [&](const Tensor& at, RowWindow) { ops->soft_cap({.x = at, .cap = 2}); });
  expect_in_place(x, [&](const Tensor& at, RowWindow) { ops->clip({.x = at, .limit = 0.75}); });
  expect_in_place(x, [&](const Tensor& at, RowWindow window) {
    ops->clip_backward({.dx = at, .x = rows(limited, window), .limit = 0.75});
  });
  expect_in_place(x, [&](const Tensor& at, RowWindow) { ops->fill(at, 0.25); });
}

TEST_F(LargeSizes, Embedding) {
  constexpr std::int64_t V = 1000;
  const SmallTensor w = small_values(DType::bfloat16, {V, D}, 1);
  LargeTensor y(DType::bfloat16, sizes, 2);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(N)), places = ids;
  for (std::int64_t n = 0; n < N; ++n) ids[static_cast<std::size_t>(n)] = static_cast<std::int32_t>(n * 7919 % V);
  const Tensor tokens(ids.data(), DType::int32, {N});
  ops->embedding({.tokens = tokens, .w = w, .y = y.clear(windows)});
  expect_rows(y, windows, [&](RowWindow window) {
    SmallTensor alone(DType::bfloat16, rows_of(window));
    ops->embedding({.tokens = rows(tokens, window), .w = w, .y = alone});
    return alone;
  });
  expect_in_place(y, [&](const Tensor& at, RowWindow window) {
    ops->add_positions({.w = w, .y = at, .seq_len = V, .first_token = window.first});
  });
  // A table of as many rows.
  for (const RowWindow& window : windows) {
    std::iota(places.begin(), places.begin() + window.count, static_cast<std::int32_t>(window.first));
    const Tensor of_window(places.data(), DType::int32, {window.count});
    SmallTensor found(DType::bfloat16, rows_of(window));
    ops->embedding({.tokens = of_window, .w = y, .y = found});
    EXPECT_TRUE(has_same_bytes(found, rows(y, window)));
  }
}

TEST_F(LargeSizes, EmbeddingBackward) {
  LargeTensor dw(DType::float32, sizes, 1);
  dw.keep(windows);
  for (const RowWindow& window : windows) {
    const SmallTensor dy = small_values(DType::bfloat16, rows_of(window), 2), before(rows(dw, window));
    std::vector<std::int32_t> ids(static_cast<std::size_t>(window.count)), alone = ids;
    std::iota(ids.begin(), ids.end(), static_cast<std::int32_t>(window.first));
    std::iota(alone.begin(), alone.end(), 0);
    ops->embedding_backward({.tokens = Tensor(ids.data(), DType::int32, {window.count}), .dy = dy, .dw = dw});
    ops->embedding_backward({.tokens = Tensor(alone.data(), DType::int32, {window.count}), .dy = dy, .dw = before});
    EXPECT_TRUE(has_same_bytes(rows(dw, window), before)) << "rows from " << window.first;
  }
}

TEST_F(LargeSizes, CrossEntropy) {
  const std::int64_t V = num_small_elements() / 16384 + 512, rows_at = num_large_rows(V);
  const std::vector<RowWindow> of_logits = windows_of(V);
  const LargeTensor logits(DType::bfloat16, {rows_at, V}, 1);
  LargeTensor dlogits(DType::bfloat16, {rows_at, V}, 2);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(rows_at));
  for (std::int64_t n = 0; n < rows_at; ++n) ids[static_cast<std::size_t>(n)] = static_cast<std::int32_t>(n * 7919 % V);
  const Tensor targets(ids.data(), DType::int32, {rows_at});
  const auto statistic = [&] { return SmallTensor(DType::float32, {rows_at}); };
  const SmallTensor max = statistic(), sum = statistic(), target_logit = statistic(), lse = statistic();
  const SmallTensor loss(DType::float64, {1});
  *loss->as<double>() = 0;
  const RowExpArgs exp = {
      .logits = logits, .targets = targets, .max = max, .sum = sum, .target_logit = target_logit, .valid_columns = V};
  ops->row_exp(exp);
  ops->cross_entropy(
      {.max = max, .sum = sum, .target_logit = target_logit, .targets = targets, .lse = lse, .loss_sum = loss});
  ops->cross_entropy_backward({.exps = logits,
                               .max = max,
                               .lse = lse,
                               .targets = targets,
                               .dlogits = dlogits.clear(of_logits),
                               .valid_columns = V});
  for (const RowWindow& window : of_logits) {
    const Sizes count = {window.count};
    const SmallTensor max_alone(DType::float32, count), sum_alone(DType::float32, count), target(DType::float32, count),
        alone(DType::bfloat16, {window.count, V});
    RowExpArgs exp_alone = exp;
    exp_alone.logits = rows(logits, window);
    exp_alone.targets = rows(targets, window);
    exp_alone.max = max_alone;
    exp_alone.sum = sum_alone;
    exp_alone.target_logit = target;
    ops->row_exp(exp_alone);
    EXPECT_TRUE(has_same_bytes(rows(sum, window), sum_alone));
    EXPECT_TRUE(has_same_bytes(rows(target_logit, window), target));
    ops->cross_entropy_backward({.exps = exp_alone.logits,
                                 .max = max_alone,
                                 .lse = rows(lse, window),
                                 .targets = exp_alone.targets,
                                 .dlogits = alone,
                                 .valid_columns = V});
    EXPECT_TRUE(has_same_bytes(rows(dlogits, window), alone)) << "rows from " << window.first;
  }
}

// Rows in another order: of context parallelism and of experts.
TEST_F(LargeSizes, MovedRows) {
  const LargeTensor x(DType::bfloat16, sizes, 1);
  LargeTensor y(DType::bfloat16, sizes, 2);
  std::vector<std::int32_t> order(static_cast<std::size_t>(N));
  for (std::int64_t n = 0; n < N; ++n) order[static_cast<std::size_t>(n)] = static_cast<std::int32_t>(N - 1 - n);
  const auto reversed = [&](RowWindow window) {
    SmallTensor alone(DType::bfloat16, rows_of(window));
    for (std::int64_t i = 0; i < window.count; ++i) ops->copy(alone->rows(i, 1), x->rows(N - 1 - window.first - i, 1));
    return alone;
  };
  ops->gather_rows({.x = x, .index = Tensor(order.data(), DType::int32, {N}), .y = y.clear(windows)});
  expect_rows(y, windows, reversed);
  const Tensor slots(order.data(), DType::int32, {N, 1});
  ops->permute_to_experts({.x = x, .slots = slots, .y = y.clear(windows)});
  expect_rows(y, windows, reversed);
  ops->combine_experts({.y = x, .slots = slots, .out = y.clear(windows)});
  expect_rows(y, windows, reversed);
}

// [N, 4, W] becomes [4, N, W], and the reverse.
TEST_F(LargeSizes, ExchangedHeads) {
  constexpr std::int64_t P = 4, W = D / P;
  const LargeTensor x(DType::bfloat16, sizes, 1);
  LargeTensor y(DType::bfloat16, {P * N, W}, 2);
  const std::vector<RowWindow> blocks = {{0, 3}, {P * N - 20 * P, 6}, {P * N - 3, 3}};
  ops->split_heads({.x = x->reshaped({N, P, W}), .y = y.clear(blocks)->reshaped({P, N, W})});
  expect_rows(y, blocks, [&](RowWindow window) {
    SmallTensor alone(DType::bfloat16, {window.count, W});
    for (std::int64_t i = 0; i < window.count; ++i) {
      const std::int64_t row = window.first + i;
      ops->copy(alone->rows(i, 1), x->reshaped({N * P, W}).rows(row % N * P + row / N, 1));
    }
    return alone;
  });
  ops->join_heads({.x = x->reshaped({P, N, W}), .y = y.clear(blocks)->reshaped({N, P, W})});
  expect_rows(y, blocks, [&](RowWindow window) {
    SmallTensor alone(DType::bfloat16, {window.count, W});
    for (std::int64_t i = 0; i < window.count; ++i) {
      const std::int64_t row = window.first + i;
      ops->copy(alone->rows(i, 1), x->reshaped({P * N, W}).rows(row % P * N + row / P, 1));
    }
    return alone;
  });
}

// By positions up to 2^24, and by tables.
TEST_F(LargeSizes, Rope) {
  constexpr std::int64_t C = 64, H = D / C, last_position = (std::int64_t{1} << 24) - 1;
  const LargeTensor x(DType::bfloat16, sizes, 1);
  LargeTensor y(DType::bfloat16, sizes, 2);
  const auto heads = [&](const Tensor& of) { return of.reshaped({1, of.size(0), H, C}); };
  std::vector<std::int32_t> of_rows(static_cast<std::size_t>(N));
  for (std::int64_t n = 0; n < N; ++n)
    of_rows[static_cast<std::size_t>(n)] = static_cast<std::int32_t>(last_position - N + 1 + n);
  std::vector<double> radians;
  for (std::int64_t i = 0; i < C / 2; ++i) radians.push_back(std::pow(10000.0, -2.0 * static_cast<double>(i) / C));
  const Tensor positions(of_rows.data(), DType::int32, {N}), frequencies(radians.data(), DType::float64, {C / 2});
  ops->rope({.x = heads(x),
             .y = heads(y.clear(windows)),
             .cos = {},
             .sin = {},
             .positions = positions,
             .frequencies = frequencies});
  expect_rows(y, windows, [&](RowWindow window) {
    SmallTensor alone(DType::bfloat16, rows_of(window));
    ops->rope({.x = heads(rows(x, window)),
               .y = heads(alone),
               .cos = {},
               .sin = {},
               .positions = rows(positions, window),
               .frequencies = frequencies});
    return alone;
  });
  // The first pair of the last row turns by its position.
  const std::int64_t at = (N - 1) * D;
  const auto float_at = [](const Tensor& of, std::int64_t i) { return to<float>(of.as<bfloat16>()[i]); };
  const double angle = static_cast<double>(last_position), x1 = float_at(x, at), x2 = float_at(x, at + C / 2);
  EXPECT_NEAR(float_at(y, at), x1 * std::cos(angle) - x2 * std::sin(angle), 2e-2);
  const SmallTensor cos = small_values(DType::float32, {N, C / 2}, 3),
                    sin = small_values(DType::float32, {N, C / 2}, 4);
  ops->rope({.x = heads(x), .y = heads(y.clear(windows)), .cos = cos, .sin = sin});
  expect_rows(y, windows, [&](RowWindow window) {
    SmallTensor alone(DType::bfloat16, rows_of(window));
    ops->rope({.x = heads(rows(x, window)), .y = heads(alone), .cos = rows(cos, window), .sin = rows(sin, window)});
    return alone;
  });
}

TEST_F(LargeSizes, AdamW) {
  LargeTensor param(DType::float32, sizes, 1), m(DType::float32, sizes, 2), v(DType::float32, sizes, 3);
  const LargeTensor grad(DType::float32, sizes, 4);
  AdamWScalars scalars = {.lr = 1e-2, .step_size = 1e-2};
  const Tensor of_step(&scalars, DType::float64, {num_adamw_scalars});
  // v is a sum of squares.
  ops->fill(v.keep(windows), 0.25);
  param.keep(windows);
  m.keep(windows);
  std::vector<SmallTensor> params, ms, vs;
  for (const RowWindow& window : windows) {
    params.emplace_back(rows(param, window));
    ms.emplace_back(rows(m, window));
    vs.emplace_back(rows(v, window));
  }
  const auto update = [&](const Tensor& of_param, const Tensor& of_grad, const Tensor& of_m, const Tensor& of_v) {
    ops->adamw({.param = of_param.flat(),
                .master = of_param.flat(),
                .grad = of_grad.flat(),
                .m = of_m.flat(),
                .v = of_v.flat(),
                .scalars = of_step,
                .beta1 = 0.9,
                .beta2 = 0.95,
                .eps = 1e-8,
                .weight_decay = 0.1});
  };
  update(param, grad, m, v);
  for (std::size_t i = 0; i < windows.size(); ++i) {
    update(params[i], rows(grad, windows[i]), ms[i], vs[i]);
    EXPECT_TRUE(has_same_bytes(rows(param, windows[i]), params[i])) << "rows from " << windows[i].first;
    EXPECT_TRUE(has_same_bytes(rows(v, windows[i]), vs[i])) << "rows from " << windows[i].first;
  }
}

// The values are multiples of 1/8, of whose squares float64 loses none.
TEST_F(LargeSizes, SumOfSquares) {
  const LargeTensor x(DType::bfloat16, sizes, 1);
  const SmallTensor sums(DType::float64, {3});
  std::fill_n(sums->as<double>(), 3, 0.0);
  ops->sum_of_squares(x, sums->rows(0, 1));
  ops->sum_of_squares(x->rows(0, N / 2), sums->rows(1, 1));
  ops->sum_of_squares(x->rows(N / 2, N - N / 2), sums->rows(1, 1));
  EXPECT_EQ(sums->as<double>()[0], sums->as<double>()[1]);
}

}  // namespace
}  // namespace echelon::testing
