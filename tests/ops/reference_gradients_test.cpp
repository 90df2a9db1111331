// The reference's gradients against central differences in float64: loss = sum of (a fixed random number times an
// output).
#include "ops/reference/reference_ops.h"

#include "numbers.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

constexpr DType f64 = DType::float64;

Numbers random(Sizes sizes, unsigned seed) { return Numbers::random(f64, sizes, seed); }
Numbers empty(Sizes sizes) { return {f64, sizes}; }

double dot(const Numbers& x, const Numbers& y) {
  double sum = 0;
  for (std::int64_t i = 0; i < x.count(); ++i) sum += x.get(i) * y.get(i);
  return sum;
}

TEST(ReferenceGradients, LayerNorm) {
  ReferenceOps ops;
  const std::int64_t N = 3, D = 7;
  Numbers x = random({N, D}, 1), w = random({D}, 2), b = random({D}, 3), dy = random({N, D}, 4);
  Numbers y = empty({N, D}), mean = empty({N}), rstd = empty({N}), dx = empty({N, D}), dw = empty({D}), db = empty({D});
  const auto loss = [&] {
    ops.layer_norm({.x = x, .w = w, .b = b, .y = y, .mean = mean, .rstd = rstd});
    return dot(y, dy);
  };
  loss();
  ops.layer_norm_backward_input({.dy = dy, .x = x, .w = w, .mean = mean, .rstd = rstd, .dx = dx});
  ops.layer_norm_backward_weight({.dy = dy, .x = x, .mean = mean, .rstd = rstd, .dw = dw, .db = db});
  expect_gradient(x, dx, loss, "dx");
  expect_gradient(w, dw, loss, "dw");
  expect_gradient(b, db, loss, "db");
}

TEST(ReferenceGradients, RmsNorm) {
  ReferenceOps ops;
  const std::int64_t N = 3, D = 7;
  Numbers x = random({N, D}, 1), w = random({D}, 2), dy = random({N, D}, 4);
  Numbers y = empty({N, D}), rstd = empty({N}), dx = empty({N, D}), dw = empty({D});
  const auto loss = [&] {
    ops.rms_norm({.x = x, .w = w, .y = y, .rstd = rstd});
    return dot(y, dy);
  };
  loss();
  ops.rms_norm_backward_input({.dy = dy, .x = x, .w = w, .rstd = rstd, .dx = dx});
  ops.rms_norm_backward_weight({.dy = dy, .x = x, .rstd = rstd, .dw = dw});
  expect_gradient(x, dx, loss, "dx");
  expect_gradient(w, dw, loss, "dw");
}

// A residual stream around the branch that ended in x: h = x + residual goes on, and through the norm.
TEST(ReferenceGradients, NormsOfAResidualStream) {
  ReferenceOps ops;
  const std::int64_t N = 3, D = 7;
  Numbers x = random({N, D}, 1), w = random({D}, 2), b = random({D}, 3), residual = random({N, D}, 4),
          dy = random({N, D}, 5), dh = random({N, D}, 6);
  Numbers y = empty({N, D}), mean = empty({N}), rstd = empty({N}), dx = empty({N, D}), dw = empty({D}), db = empty({D}),
          h = x;
  const auto layer_norm = [&] {
    h = x;
    ops.layer_norm({.x = h, .w = w, .b = b, .y = y, .mean = mean, .rstd = rstd, .residual = residual});
    return dot(y, dy) + dot(h, dh);
  };
  layer_norm();
  ops.layer_norm_backward(
      {.dy = dy, .x = h, .w = w, .mean = mean, .rstd = rstd, .dx = dx, .dw = dw, .db = db, .dresidual = dh});
  for (Numbers* of : {&x, &residual}) expect_gradient(*of, dx, layer_norm, "layer_norm dx");
  expect_gradient(w, dw, layer_norm, "layer_norm dw");
  expect_gradient(b, db, layer_norm, "layer_norm db");

  const auto rms_norm = [&] {
    h = x;
    ops.rms_norm({.x = h, .w = w, .y = y, .rstd = rstd, .residual = residual});
    return dot(y, dy) + dot(h, dh);
  };
  rms_norm();
  ops.fill(dw, 0.0);
  ops.rms_norm_backward({.dy = dy, .x = h, .w = w, .rstd = rstd, .dx = dx, .dw = dw, .dresidual = dh});
  for (Numbers* of : {&x, &residual}) expect_gradient(*of, dx, rms_norm, "rms_norm dx");
  expect_gradient(w, dw, rms_norm, "rms_norm dw");
}

TEST(ReferenceGradients, Rope) {
  ReferenceOps ops;
  const std::int64_t B = 2, T = 3, H = 2, C = 4;
  Numbers x = random({B, T, H, C}, 1), dy = random({B, T, H, C}, 2), y = empty({B, T, H, C}), dx = empty({B, T, H, C});
  Numbers cos = empty({8, C / 2}), sin = empty({8, C / 2});
  for (std::int64_t i = 0; i < cos.count(); ++i) {
    cos.set(i, std::cos(0.3 * static_cast<double>(i)));
    sin.set(i, std::sin(0.3 * static_cast<double>(i)));
  }
  const auto loss = [&] {
    ops.rope({.x = x, .y = y, .cos = cos, .sin = sin, .first_position = 5});
    return dot(y, dy);
  };
  loss();
  EXPECT_NEAR(dot(x, x), dot(y, y), 1e-12);  // a rotation
  ops.rope({.x = dy, .y = dx, .cos = cos, .sin = sin, .inverse = true, .first_position = 5});
  expect_gradient(x, dx, loss, "dx");
}

TEST(ReferenceGradients, AttentionWithGroupsAndAFirstHead) {
  ReferenceOps ops;
  const std::int64_t B = 2, T = 5, H = 4, K = 3, C = 3;
  for (const auto& [group, first_head] : {std::pair<std::int64_t, std::int64_t>{2, 1}, {2, 0}, {4, 6}}) {
    Numbers q = random({B, T, H, C}, 1), k = random({B, T, K, C}, 2), v = random({B, T, K, C}, 3),
            dout = random({B, T, H, C}, 4);
    Numbers out = empty({B, T, H, C}), lse = empty({B, H, T}), delta = empty({B, H, T});
    Numbers dq = random({B, T, H, C}, 5), dk = random({B, T, K, C}, 6), dv = random({B, T, K, C}, 7);  // overwritten
    const auto loss = [&] {
      ops.attention(
          {.q = q, .k = k, .v = v, .out = out, .lse = lse, .scale = 0.6, .group = group, .first_head = first_head});
      return dot(out, dout);
    };
    loss();
    ops.attention_backward({.q = q,
                            .k = k,
                            .v = v,
                            .out = out,
                            .lse = lse,
                            .dout = dout,
                            .dq = dq,
                            .dk = dk,
                            .dv = dv,
                            .delta = delta,
                            .scale = 0.6,
                            .group = group,
                            .first_head = first_head});
    expect_gradient(q, dq, loss, "dq");
    expect_gradient(k, dk, loss, "dk");
    expect_gradient(v, dv, loss, "dv");
  }
}

// The last queries of a longer sequence see what they would see in it: generation one token at a time.
TEST(ReferenceAttention, OfTheLastQueriesIsTheEndOfTheWhole) {
  ReferenceOps ops;
  const std::int64_t T = 6, Tq = 2, H = 2, C = 3;
  const Numbers q = random({1, T, H, C}, 1), k = random({1, T, H, C}, 2), v = random({1, T, H, C}, 3);
  Numbers out = empty({1, T, H, C}), lse = empty({1, H, T}), last = empty({1, Tq, H, C}), last_lse = empty({1, H, Tq});
  ops.attention({.q = q, .k = k, .v = v, .out = out, .lse = lse});
  ops.attention({.q = q.tensor().reshaped({T, H, C}).rows(T - Tq, Tq).reshaped({1, Tq, H, C}),
                 .k = k,
                 .v = v,
                 .out = last,
                 .lse = last_lse});
  for (std::int64_t i = 0; i < last.count(); ++i) EXPECT_EQ(last.get(i), out.get((T - Tq) * H * C + i));
}

// A document in a sequence of several is what it is alone.
TEST(ReferenceAttention, OfADocumentIsThatOfItAlone) {
  ReferenceOps ops;
  const std::int64_t T = 9, H = 1, C = 3;
  const Numbers q = random({1, T, H, C}, 1), k = random({1, T, H, C}, 2), v = random({1, T, H, C}, 3),
                dout = random({1, T, H, C}, 4);
  const Numbers starts = Numbers::tokens({0, 0, 0, 3, 4, 4, 4, 4, 4});
  Numbers out = empty({1, T, H, C}), lse = empty({1, H, T}), delta = empty({1, H, T});
  Numbers dq = empty({1, T, H, C}), dk = empty({1, T, H, C}), dv = empty({1, T, H, C});
  ops.attention({.q = q, .k = k, .v = v, .out = out, .lse = lse, .mask = {.begin = starts}});
  ops.attention_backward({.q = q,
                          .k = k,
                          .v = v,
                          .out = out,
                          .lse = lse,
                          .dout = dout,
                          .dq = dq,
                          .dk = dk,
                          .dv = dv,
                          .delta = delta,
                          .mask = {.begin = starts}});
  for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 3}, {3, 1}, {4, 5}}) {
    const auto part = [&, first = first, count = count](const Numbers& x) {
      return x.tensor().reshaped({T, H, C}).rows(first, count).reshaped({1, count, H, C});
    };
    const Sizes sizes = {1, count, H, C};
    Numbers own_out = empty(sizes), own_lse = empty({1, H, count}), own_delta = empty({1, H, count}),
            own_dq = empty(sizes), own_dk = empty(sizes), own_dv = empty(sizes);
    ops.attention({.q = part(q), .k = part(k), .v = part(v), .out = own_out, .lse = own_lse});
    ops.attention_backward({.q = part(q),
                            .k = part(k),
                            .v = part(v),
                            .out = own_out,
                            .lse = own_lse,
                            .dout = part(dout),
                            .dq = own_dq,
                            .dk = own_dk,
                            .dv = own_dv,
                            .delta = own_delta});
    for (std::int64_t i = 0; i < own_out.count(); ++i) {
      const std::int64_t at = first * H * C + i;
      EXPECT_EQ(own_out.get(i), out.get(at));
      EXPECT_EQ(own_dq.get(i), dq.get(at));
      EXPECT_EQ(own_dk.get(i), dk.get(at));
      EXPECT_EQ(own_dv.get(i), dv.get(at));
    }
  }
}

TEST(ReferenceGradients, GeluAndSwiglu) {
  ReferenceOps ops;
  const Sizes sizes = {3, 5};
  Numbers x = random(sizes, 1), up = random(sizes, 2), dy = random(sizes, 3), bias = random({5}, 4), dbias = empty({5});
  Numbers y = empty(sizes), y_again = empty(sizes), dx = empty(sizes), dup = empty(sizes);
  const auto gelu = [&] {
    ops.gelu({.x = x, .y = y, .bias = bias});
    return dot(y, dy);
  };
  gelu();
  const Numbers gelu_y = y;
  ops.gelu_backward({.dy = dy, .x = x, .dx = dx, .bias = bias, .dbias = dbias, .y = y_again});
  expect_gradient(x, dx, gelu, "gelu dx");
  expect_gradient(bias, dbias, gelu, "gelu dbias");
  EXPECT_TRUE(y_again == gelu_y);
  const auto gelu_by_erf = [&] {
    ops.gelu({.x = x, .y = y, .kind = GeluKind::erf});
    return dot(y, dy);
  };
  gelu_by_erf();
  for (std::int64_t i = 0; i < x.count(); ++i)
    EXPECT_NEAR(y.get(i), x.get(i) * 0.5 * (1 + std::erf(x.get(i) / std::sqrt(2.0))), 1e-15);
  ops.gelu_backward({.dy = dy, .x = x, .dx = dx, .kind = GeluKind::erf});
  expect_gradient(x, dx, gelu_by_erf, "gelu by erf dx");
  const auto geglu = [&] {
    ops.swiglu({.gate = x, .up = up, .y = y, .kind = GateKind::gelu_tanh});
    return dot(y, dy);
  };
  ops.swiglu_backward({.dy = dy, .gate = x, .up = up, .dgate = dx, .dup = dup, .kind = GateKind::gelu_tanh});
  expect_gradient(x, dx, geglu, "geglu dgate");
  expect_gradient(up, dup, geglu, "geglu dup");
  const auto swiglu = [&] {
    ops.swiglu({.gate = x, .up = up, .y = y});
    return dot(y, dy);
  };
  swiglu();
  const Numbers swiglu_y = y;
  ops.swiglu_backward({.dy = dy, .gate = x, .up = up, .dgate = dx, .dup = dup, .y = y_again});
  EXPECT_TRUE(y_again == swiglu_y);
  expect_gradient(x, dx, swiglu, "swiglu dgate");
  expect_gradient(up, dup, swiglu, "swiglu dup");
}

TEST(ReferenceGradients, SoftCaps) {
  ReferenceOps ops;
  const Sizes sizes = {3, 5};
  Numbers x = random(sizes, 1), y = empty(sizes), dy = random(sizes, 3);
  const auto soft_cap = [&] {
    y = x;
    ops.soft_cap({.x = y, .cap = 1.3});
    return dot(y, dy);
  };
  soft_cap();
  for (std::int64_t i = 0; i < x.count(); ++i) EXPECT_NEAR(y.get(i), 1.3 * std::tanh(x.get(i) / 1.3), 1e-15);
  Numbers dx = dy;
  ops.soft_cap_backward({.dx = dx, .y = y, .cap = 1.3});
  expect_gradient(x, dx, soft_cap, "soft cap dx");
}

TEST(ReferenceGradients, Clips) {
  ReferenceOps ops;
  const Sizes sizes = {3, 5};
  Numbers x = random(sizes, 1), y = empty(sizes), dy = random(sizes, 3);
  const auto clip = [&] {
    y = x;
    ops.clip({.x = y, .limit = 0.5});
    return dot(y, dy);
  };
  clip();
  int num_clipped = 0;
  for (std::int64_t i = 0; i < x.count(); ++i) {
    EXPECT_EQ(y.get(i), std::min(std::max(x.get(i), -0.5), 0.5));
    num_clipped += y.get(i) != x.get(i) ? 1 : 0;
  }
  EXPECT_GT(num_clipped, 0);
  EXPECT_LT(num_clipped, x.count());
  for (const Numbers& of : {x, y}) {
    Numbers dx = dy;
    ops.clip_backward({.dx = dx, .x = of, .limit = 0.5});
    expect_gradient(x, dx, clip, "clip dx");
  }
}

// A vocabulary of 7 in two shards of 4 columns, the last column padding; one ignored target.
TEST(ReferenceGradients, CrossEntropyOverShardsOfTheVocabulary) {
  ReferenceOps ops;
  const std::int64_t N = 4, V = 4;
  std::vector<Numbers> logits = {random({N, V}, 1), random({N, V}, 2)};
  const Numbers targets = Numbers::tokens({6, 0, ignored_target, 4});
  const std::int64_t valid[2] = {4, 3};
  Numbers lse = empty({N});
  std::vector<Numbers> exps = logits, max(2, empty({N}));
  const auto loss = [&] {
    Numbers row_max = empty({N}), sum = empty({N}), target_logit = empty({N}), loss_sum = empty({1});
    std::vector<Numbers> part_sum(2, empty({N})), part_target(2, empty({N}));
    ops.fill(row_max, -1e300);
    for (std::size_t shard = 0; shard < 2; ++shard) {
      exps[shard] = logits[shard];
      ops.row_exp({.logits = exps[shard],
                   .targets = targets,
                   .max = max[shard],
                   .sum = part_sum[shard],
                   .target_logit = part_target[shard],
                   .first_column = V * static_cast<std::int64_t>(shard),
                   .valid_columns = valid[shard]});
      for (std::int64_t n = 0; n < N; ++n) row_max.set(n, std::max(row_max.get(n), max[shard].get(n)));
    }
    for (std::size_t shard = 0; shard < 2; ++shard) {
      ops.rescale_sums({.sum = part_sum[shard], .max = max[shard], .row_max = row_max});
      ops.add(sum, sum, part_sum[shard]);
      ops.add(target_logit, target_logit, part_target[shard]);
    }
    ops.cross_entropy({.max = row_max,
                       .sum = sum,
                       .target_logit = target_logit,
                       .targets = targets,
                       .lse = lse,
                       .loss_sum = loss_sum});
    return loss_sum.get(0);
  };
  // The closed form for the first row: -log softmax of token 6, which is column 2 of the second shard.
  double sum = 0;
  for (std::int64_t j = 0; j < 7; ++j) sum += std::exp(logits[static_cast<std::size_t>(j / V)].get(j % V));
  loss();
  EXPECT_NEAR(lse.get(0), std::log(sum), 1e-12);
  for (std::size_t shard = 0; shard < 2; ++shard) {
    Numbers dlogits = empty({N, V});
    loss();
    ops.cross_entropy_backward({.exps = exps[shard],
                                .max = max[shard],
                                .lse = lse,
                                .targets = targets,
                                .dlogits = dlogits,
                                .first_column = V * static_cast<std::int64_t>(shard),
                                .valid_columns = valid[shard],
                                .scale = 1.0});
    expect_gradient(logits[shard], dlogits, loss, "dlogits");
    EXPECT_TRUE(shard == 0 || dlogits.get(3) == 0.0);                             // padding
    for (std::int64_t j = 0; j < V; ++j) EXPECT_EQ(dlogits.get(2 * V + j), 0.0);  // the ignored target's row
  }
}

TEST(ReferenceGradients, EmbeddingPositionsBiasAndProduct) {
  ReferenceOps ops;
  const std::int64_t N = 6, D = 3, T = 3;
  const Numbers tokens = Numbers::tokens({4, 7, 5, 4, 3, 5});  // rows 4..6 are here
  Numbers w = random({3, D}, 1), positions = random({4, D}, 2), bias = random({D}, 3), a = random({D, 2}, 4),
          dc = random({N, 2}, 5);
  Numbers y = empty({N, D}), c = empty({N, 2}), dy = empty({N, D});
  Numbers dw = empty({3, D}), dpositions = empty({4, D}), dbias = empty({D}), da = empty({D, 2});
  const auto loss = [&] {
    ops.embedding({.tokens = tokens, .w = w, .y = y, .first_row = 4});
    ops.add_positions({.w = positions, .y = y, .seq_len = T, .first_token = 2});
    ops.add_bias(y, bias);
    ops.matmul({.a = y, .b = a, .c = c});
    return dot(c, dc);
  };
  loss();
  ops.matmul({.a = dc, .b = a, .c = dy, .transpose_b = true});
  ops.matmul({.a = y, .b = dc, .c = da, .transpose_a = true, .accumulates = true});
  ops.bias_backward(dy, dbias);
  ops.positions_backward({.dy = dy, .dw = dpositions, .seq_len = T, .first_token = 2});
  ops.embedding_backward({.tokens = tokens, .dy = dy, .dw = dw, .first_row = 4});
  expect_gradient(w, dw, loss, "embedding");
  expect_gradient(positions, dpositions, loss, "positions");
  expect_gradient(bias, dbias, loss, "bias");
  expect_gradient(a, da, loss, "product");
}

// torch.optim.AdamW, single tensor, written out for one number at a time.
TEST(ReferenceAdamW, FollowsPyTorchsOrderOfOperations) {
  ReferenceOps ops;
  const std::int64_t n = 5;
  Numbers p = random({n}, 1), m = empty({n}), v = empty({n});
  std::vector<double> expected_p, expected_m(n), expected_v(n);
  for (std::int64_t i = 0; i < n; ++i) expected_p.push_back(p.get(i));
  const double lr = 0.01, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, grad_scale = 0.25;
  for (std::int64_t step = 1; step <= 3; ++step) {
    const Numbers grad = random({n}, 10 + static_cast<unsigned>(step));
    const double bias1 = 1 - std::pow(beta1, step), bias2 = 1 - std::pow(beta2, step);
    AdamWScalars now = {.lr = lr, .step_size = lr / bias1, .sqrt_bias2 = std::sqrt(bias2), .grad_scale = grad_scale};
    ops.adamw({.param = p,
               .master = p,
               .grad = grad,
               .m = m,
               .v = v,
               .scalars = {&now, DType::float64, {num_adamw_scalars}},
               .beta1 = beta1,
               .beta2 = beta2,
               .eps = eps,
               .weight_decay = weight_decay});
    for (std::size_t i = 0; i < expected_p.size(); ++i) {
      const double g = grad.get(static_cast<std::int64_t>(i)) * grad_scale;
      expected_p[i] *= 1 - lr * weight_decay;
      expected_m[i] = expected_m[i] + (1 - beta1) * (g - expected_m[i]);
      expected_v[i] = beta2 * expected_v[i] + (1 - beta2) * g * g;
      const double step_size = lr / bias1, denominator = std::sqrt(expected_v[i]) / std::sqrt(bias2) + eps;
      expected_p[i] += -step_size * (expected_m[i] / denominator);
      EXPECT_NEAR(p.get(static_cast<std::int64_t>(i)), expected_p[i], 1e-14);
    }
  }
}

// torch.nn.utils.clip_grad_norm_ on the gradient of a mean of 3 targets, where 8 were expected and the loss was scaled
// by 4.
TEST(ReferenceGradientFactor, ClipsTheGradientOfTheMean) {
  ReferenceOps ops;
  double squares = 36, num_targets = 3, loss_scale = 4, norm = 0, factor = 0;
  const auto number = [](double& x) { return Tensor(&x, DType::float64, {1}); };
  const auto form = [&](double max_norm) {
    ops.gradient_factor({.sum_of_squares = number(squares),
                         .num_targets = number(num_targets),
                         .norm = number(norm),
                         .factor = number(factor),
                         .loss_scale = number(loss_scale),
                         .expected_targets = 8,
                         .max_norm = max_norm});
  };
  form(1);
  EXPECT_DOUBLE_EQ(norm, 4);  // 6 * 8 / 3 / 4
  EXPECT_DOUBLE_EQ(factor, 2.0 / 3 / (4 + 1e-6));
  for (const double max_norm : {0.0, 5.0}) {
    form(max_norm);
    EXPECT_DOUBLE_EQ(factor, 2.0 / 3);
  }
  num_targets = 0;
  form(1);
  EXPECT_EQ(norm, 0);
  EXPECT_EQ(factor, 0);
  num_targets = 3;
  for (const double not_finite : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    squares = not_finite;
    form(1);
    EXPECT_FALSE(std::isfinite(norm));
    EXPECT_TRUE(std::isnan(factor));
  }
}

}  // namespace
}  // namespace echelon
