#include "conformance.h"

#include "base/error.h"
#include "ops/reference/reference_ops.h"
#include "tensor/remainder.h"

#include <array>
#include <cmath>
#include <limits>

namespace echelon {

void OpsConformance::compare(const std::string& what, const Tensors& tensors, const OperationOnTensors& operation,
                             std::size_t num_scratch) const {
  ReferenceOps reference;
  Tensors expected = tensors;
  operation(reference, expected);
  const Tensors actual = backend_->run(what, tensors, operation);
  for (std::size_t i = 0; i < tensors.size() - num_scratch; ++i) {
    // A float64 sum of float32 numbers is as good as they are.
    const double tolerance = std::max(tolerance_of(tensors[i].tensor().dtype), tolerance_of(sums));
    expect_near(actual[i], expected[i], GetParam().slack * tolerance,
                what + ", tensor " + std::to_string(i) + " " + std::string(name_of(tensors[i].tensor().dtype)));
  }
}

namespace {

constexpr std::int64_t widths[] = {0, 1, 3, 16, 33, 100};

TEST_P(OpsConformance, Matmul) {
  struct Case {
    std::int64_t m, n, k;
  };
  // Past a block of rows, of columns and of k.
  for (const auto& [m, n, k] : {Case{1, 1, 1},
                                {5, 7, 3},
                                {64, 33, 17},
                                {0, 4, 3},
                                {4, 0, 3},
                                {4, 3, 0},
                                {70, 130, 90},
                                {3, 1030, 5},
                                {1100, 2, 3},
                                {2, 3, 1100},
                                {15, 2100, 7},
                                {4100, 3, 5}})
    for (const DType c_dtype : gradient_dtypes())
      for (int bits = 0; bits < 8; ++bits) {
        const bool ta = (bits & 1) != 0, tb = (bits & 2) != 0, accumulates = (bits & 4) != 0;
        const Tensors tensors = {random(ta ? Sizes{k, m} : Sizes{m, k}, 1), random(tb ? Sizes{n, k} : Sizes{k, n}, 2),
                                 Numbers::random(c_dtype, {m, n}, 3)};
        compare(
            fmt::format("matmul {} {} {} transposes {}{} adds {}", m, n, k, ta, tb, accumulates), tensors,
            [&](Ops& ops, Tensors& t) {
              ops.matmul(
                  {.a = t[0], .b = t[1], .c = t[2], .transpose_a = ta, .transpose_b = tb, .accumulates = accumulates});
            });
      }
}

TEST_P(OpsConformance, MatmulInFloat8) {
  if (dtype == DType::float64) GTEST_SKIP() << "of processors alone (float8_test.cpp)";
  struct Case {
    std::int64_t m, n, k;
  };
  for (const auto& [m, n, k] : {Case{16, 16, 16}, {5, 32, 48}, {80, 16, 144}, {0, 16, 16}, {16, 16, 0}})
    for (const DType c_dtype : gradient_dtypes())
      for (int bits = 0; bits < 8; ++bits) {
        const bool ta = (bits & 1) != 0, tb = (bits & 2) != 0, accumulates = (bits & 4) != 0;
        if (ta && m % 16 != 0) continue;
        const Tensors tensors = {
            random(ta ? Sizes{k, m} : Sizes{m, k}, 1, 1e-4), random(tb ? Sizes{n, k} : Sizes{k, n}, 2, 30),
            Numbers::random(c_dtype, {m, n}, 3, 1e-2), Numbers(DType::int32, {float8_scratch_size(m * k, n * k)})};
        const auto multiply = [&](Ops& ops, Tensors& t) {
          ops.matmul(rounded_in({.a = t[0],
                                 .b = t[1],
                                 .c = t[2],
                                 .transpose_a = ta,
                                 .transpose_b = tb,
                                 .accumulates = accumulates,
                                 .a_format = ta ? OperandFormat::float8_e5m2 : OperandFormat::float8_e4m3,
                                 .b_format = OperandFormat::float8_e4m3},
                                t[3]));
        };
        compare(fmt::format("matmul in float8 {} {} {} transposes {}{} adds {}", m, n, k, ta, tb, accumulates), tensors,
                multiply, 1);
      }
}

// Large enough to be divided over threads.
TEST_P(OpsConformance, MatmulOverwritesWhateverIsThere) {
  Tensors tensors = {random({3, 4}, 1), random({4, 5}, 2), random({3, 5}, 3)};
  tensors[2].set(7, std::numeric_limits<double>::quiet_NaN());
  compare("matmul onto NaN", tensors, [](Ops& ops, Tensors& t) { ops.matmul({.a = t[0], .b = t[1], .c = t[2]}); });
}

TEST_P(OpsConformance, BiasesSumsAndCopies) {
  for (const std::int64_t rows : {0, 1, 5, 700})
    for (const std::int64_t columns : widths) {
      const std::string sizes = fmt::format(" [{}, {}]", rows, columns);
      compare("add_bias" + sizes, {random({rows, columns}, 1), random({columns}, 2)},
              [](Ops& ops, Tensors& t) { ops.add_bias(t[0], t[1]); });
      compare("add" + sizes, {random({rows, columns}, 1), random({rows, columns}, 2), random({rows, columns}, 3)},
              [](Ops& ops, Tensors& t) { ops.add(t[0], t[1], t[2]); });
      compare("add in place" + sizes, {random({rows, columns}, 1), random({rows, columns}, 2)},
              [](Ops& ops, Tensors& t) { ops.add(t[0], t[0], t[1]); });
      for (const DType other : other_dtypes())
        if (accumulate_dtype(other) == sums && (other == sums || dtype == sums))
          compare("add of another format" + sizes,
                  {random({rows, columns}, 1), Numbers::random(other, {rows, columns}, 2)},
                  [](Ops& ops, Tensors& t) { ops.add(t[0], t[0], t[1]); });
      compare("fill and scale" + sizes, {random({rows, columns}, 1), random({rows, columns}, 2)},
              [](Ops& ops, Tensors& t) {
                ops.fill(t[0], 0.3);
                ops.scale(t[1], -1.7);
              });
      compare("sum_of_squares" + sizes, {random({rows, columns}, 1), Numbers::random(DType::float64, {1}, 2)},
              [](Ops& ops, Tensors& t) { ops.sum_of_squares(t[0], t[1]); });
      for (const DType g : gradient_dtypes())
        compare("bias_backward" + sizes, {random({rows, columns}, 1), Numbers::random(g, {columns}, 2)},
                [](Ops& ops, Tensors& t) { ops.bias_backward(t[0], t[1]); });
      for (const DType other : other_dtypes()) {
        const Tensors both = {random({rows, columns}, 1), Numbers::random(other, {rows, columns}, 2)};
        compare("copy" + sizes, both, [](Ops& ops, Tensors& t) { ops.copy(t[1], t[0]); });
        compare("copy of another format" + sizes, both, [](Ops& ops, Tensors& t) { ops.copy(t[0], t[1]); });
      }
    }
}

// Ties, what float16 and bfloat16 hold as subnormals or round to infinity, and what is no number.
TEST_P(OpsConformance, CopiesRound) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> values = {0,        -0.0,      1 + 0x1p-11,  1 + 0x3p-11, 1 + 0x1p-8, 1 + 0x3p-8,
                                      65504,    65519,     -65520,       1e6,         0x1p-14,    0x3p-25,
                                      0x1p-24,  0x1p-25,   -0x1.8p-25,   0x1p-30,     1e-40,      3.4e38,
                                      infinity, -infinity, std::nan(""), 1234.567};
  Numbers wide(sums, {static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i) wide.set(static_cast<std::int64_t>(i), values[i]);
  const Tensors copied =
      run({wide, Numbers(dtype, wide.tensor().sizes)}, [](Ops& ops, Tensors& t) { ops.copy(t[1], t[0]); });
  for (std::int64_t i = 0; i < wide.count(); ++i) {
    double expected = wide.get(i);
    visit_float(dtype, [&](auto t) { expected = to<double>(to<decltype(t)>(expected)); });
    EXPECT_TRUE(std::isnan(expected) ? std::isnan(copied[1].get(i)) : copied[1].get(i) == expected)
        << wide.get(i) << " became " << copied[1].get(i);
  }
}

TEST_P(OpsConformance, SumOfSquaresOfManyNumbers) {
  compare("sum_of_squares", {random({300'001}, 1), Numbers(DType::float64, {1})},
          [](Ops& ops, Tensors& t) { ops.sum_of_squares(t[0], t[1]); });
}

TEST_P(OpsConformance, EmbeddingAndPositions) {
  for (const std::int64_t columns : widths)
    for (const std::size_t count : {0UL, 1UL, 300UL}) {
      std::vector<std::int32_t> ids(count);
      // Of 23 tokens, rows 5 .. 16 are here.
      for (std::size_t i = 0; i < count; ++i) ids[i] = static_cast<std::int32_t>(i * i % 23);
      const auto N = static_cast<std::int64_t>(count);
      const Numbers tokens = Numbers::tokens(ids);
      compare("embedding", {tokens, random({12, columns}, 1), random({N, columns}, 2)},
              [](Ops& ops, Tensors& t) { ops.embedding({.tokens = t[0], .w = t[1], .y = t[2], .first_row = 5}); });
      compare("add_positions", {random({12, columns}, 1), random({N, columns}, 2)},
              [](Ops& ops, Tensors& t) { ops.add_positions({.w = t[0], .y = t[1], .seq_len = 10, .first_token = 7}); });
      // Whole numbers are exact in every format, so that the order of a bfloat16 sum's roundings is all that is
      // compared.
      for (const DType g : gradient_dtypes()) {
        compare("embedding_backward", {tokens, random({N, columns}, 1), Numbers::random(g, {12, columns}, 2)},
                [](Ops& ops, Tensors& t) {
                  ops.embedding_backward({.tokens = t[0], .dy = t[1], .dw = t[2], .first_row = 5});
                });
        compare("positions_backward", {random({N, columns}, 1), Numbers::random(g, {12, columns}, 2)},
                [](Ops& ops, Tensors& t) {
                  ops.positions_backward({.dy = t[0], .dw = t[1], .seq_len = 10, .first_token = 7});
                });
      }
    }
}

// More than a backend may sort at a time, one of them in a quarter of all places.
TEST_P(OpsConformance, GradientOfManyTokens) {
  if (dtype != DType::float32) GTEST_SKIP() << "the order of tokens does not depend on their numbers' format";
  std::vector<std::int32_t> ids(8500);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i % 4 == 1 ? 77 : i * i % 1009);
  const std::int64_t N = static_cast<std::int64_t>(ids.size());
  const Tensors tensors = {Numbers::tokens(ids), random({N, 3}, 1), random({1000, 3}, 2)};
  const auto embedding_backward = [](Ops& ops, Tensors& t) {
    ops.embedding_backward({.tokens = t[0], .dy = t[1], .dw = t[2], .first_row = 5});
  };
  ReferenceOps reference;
  Tensors expected = tensors;
  embedding_backward(reference, expected);
  EXPECT_TRUE(run(tensors, embedding_backward)[2] == expected[2]);  // every bit
}

TEST_P(OpsConformance, Norms) {
  for (const std::int64_t rows : {0, 1, 5, 300})
    for (const std::int64_t columns : {1, 3, 16, 33, 100, 768}) {
      const std::string sizes = fmt::format(" [{}, {}]", rows, columns);
      const Numbers x = random({rows, columns}, 1, 2.0), w = random({columns}, 2), b = random({columns}, 3),
                    dy = random({rows, columns}, 4);
      Tensors forward = {x, w, b, x, statistics({rows}), statistics({rows})};
      const auto layer_norm = [](Ops& ops, Tensors& t) {
        ops.layer_norm({.x = t[0], .w = t[1], .b = t[2], .y = t[3], .mean = t[4], .rstd = t[5]});
      };
      const auto rms_norm = [](Ops& ops, Tensors& t) { ops.rms_norm({.x = t[0], .w = t[1], .y = t[3], .rstd = t[5]}); };
      // Of one column, gradients and x - mean are rounding errors.
      if (columns > 1) compare("layer_norm" + sizes, forward, layer_norm);
      compare("rms_norm" + sizes, forward, rms_norm);

      ReferenceOps reference;
      layer_norm(reference, forward);
      const Numbers mean = forward[4], rstd = forward[5];
      compare("layer_norm_backward_input" + sizes, {dy, x, w, mean, rstd, x}, [](Ops& ops, Tensors& t) {
        if (t[0].tensor().size(1) > 1)
          ops.layer_norm_backward_input({.dy = t[0], .x = t[1], .w = t[2], .mean = t[3], .rstd = t[4], .dx = t[5]});
      });
      rms_norm(reference, forward);
      const Numbers rms_rstd = forward[5];
      compare("rms_norm_backward_input" + sizes, {dy, x, w, rms_rstd, x}, [](Ops& ops, Tensors& t) {
        if (t[0].tensor().size(1) > 1)
          ops.rms_norm_backward_input({.dy = t[0], .x = t[1], .w = t[2], .rstd = t[3], .dx = t[4]});
      });
      if (columns > 1) {
        compare("layer_norm of a residual stream" + sizes, {x, dy, w, b, x, mean, rstd}, [](Ops& ops, Tensors& t) {
          ops.layer_norm({.x = t[0], .w = t[2], .b = t[3], .y = t[4], .mean = t[5], .rstd = t[6], .residual = t[1]});
        });
        compare("rms_norm of a residual stream" + sizes, {x, dy, w, x, rstd}, [](Ops& ops, Tensors& t) {
          ops.rms_norm({.x = t[0], .w = t[2], .y = t[3], .rstd = t[4], .residual = t[1]});
        });
        for (const DType g : gradient_dtypes()) {
          const Numbers dw = Numbers::random(g, {columns}, 5), db = Numbers::random(g, {columns}, 6),
                        past = random({rows, columns}, 7);
          compare("layer_norm_backward" + sizes, {dy, x, w, mean, rstd, past, dw, db}, [](Ops& ops, Tensors& t) {
            ops.layer_norm_backward({.dy = t[0],
                                     .x = t[1],
                                     .w = t[2],
                                     .mean = t[3],
                                     .rstd = t[4],
                                     .dx = t[5],
                                     .dw = t[6],
                                     .db = t[7],
                                     .dresidual = t[5]});
          });
          compare("rms_norm_backward" + sizes, {dy, x, w, rms_rstd, x, dw, past}, [](Ops& ops, Tensors& t) {
            ops.rms_norm_backward(
                {.dy = t[0], .x = t[1], .w = t[2], .rstd = t[3], .dx = t[4], .dw = t[5], .dresidual = t[6]});
          });
          compare("norms' dx past and through" + sizes, {dy, x, w, mean, rstd, past, x, x}, [](Ops& ops, Tensors& t) {
            ops.layer_norm_backward_input(
                {.dy = t[0], .x = t[1], .w = t[2], .mean = t[3], .rstd = t[4], .dx = t[6], .dresidual = t[5]});
            ops.rms_norm_backward_input(
                {.dy = t[0], .x = t[1], .w = t[2], .rstd = t[4], .dx = t[7], .dresidual = t[5]});
          });
        }
      }
      for (const DType g : gradient_dtypes()) {
        compare("layer_norm_backward_weight" + sizes,
                {dy, x, mean, rstd, Numbers::random(g, {columns}, 5), Numbers::random(g, {columns}, 6)},
                [](Ops& ops, Tensors& t) {
                  ops.layer_norm_backward_weight(
                      {.dy = t[0], .x = t[1], .mean = t[2], .rstd = t[3], .dw = t[4], .db = t[5]});
                });
        compare("rms_norm_backward_weight" + sizes, {dy, x, rms_rstd, Numbers::random(g, {columns}, 5)},
                [](Ops& ops, Tensors& t) {
                  ops.rms_norm_backward_weight({.dy = t[0], .x = t[1], .rstd = t[2], .dw = t[3]});
                });
      }
    }
}

TEST_P(OpsConformance, NormsWithAnotherGain) {
  for (const std::int64_t columns : {5, 19, 64, 2051}) {
    const std::string sizes = fmt::format(" [7, {}]", columns);
    const Numbers x = random({7, columns}, 1, 2.0), w = random({columns}, 2), dy = random({7, columns}, 3),
                  past = random({7, columns}, 4), rstd = statistics({7});
    Tensors forward = {x, w, x, rstd};
    const auto rms_norm = [](Ops& ops, Tensors& t) {
      ops.rms_norm({.x = t[0], .w = t[1], .y = t[2], .rstd = t[3], .gain_offset = 1});
    };
    compare("rms_norm with gain 1 + w" + sizes, forward, rms_norm);
    compare("rms_norm rounded before its gain" + sizes, forward, [](Ops& ops, Tensors& t) {
      ops.rms_norm({.x = t[0], .w = t[1], .y = t[2], .rstd = t[3], .gain_offset = 1, .rounds_before_gain = true});
    });
    ReferenceOps reference;
    rms_norm(reference, forward);
    const Tensors backward = {dy, x, w, forward[3], past, x, Numbers::random(sums, {columns}, 5)};
    compare("its gradients" + sizes, backward, [](Ops& ops, Tensors& t) {
      ops.rms_norm_backward({.dy = t[0],
                             .x = t[1],
                             .w = t[2],
                             .rstd = t[3],
                             .dx = t[5],
                             .dw = t[6],
                             .dresidual = t[4],
                             .gain_offset = 1});
    });
    compare("its dx" + sizes, backward, [](Ops& ops, Tensors& t) {
      ops.rms_norm_backward_input({.dy = t[0], .x = t[1], .w = t[2], .rstd = t[3], .dx = t[5], .gain_offset = 1});
    });
  }
}

TEST_P(OpsConformance, NormsOfPartsOfRows) {
  for (const std::int64_t columns : {1, 19, 64, 515}) {
    const Numbers x = random({7, columns}, 1, 2.0), w = random({columns}, 2), dy = random({7, columns}, 3),
                  rstd = statistics({7}), dw = Numbers::random(sums, {columns}, 5);
    Numbers squares(sums, {7});
    for (std::int64_t i = 0; i < 7; ++i) squares.set(i, 3.0 + static_cast<double>(i + columns));
    compare("row_products", {x, dy, rstd},
            [](Ops& ops, Tensors& t) { ops.row_products({.x = t[0], .y = t[1], .sums = t[2]}); });
    compare("row_products with a gain", {x, dy, rstd, w}, [](Ops& ops, Tensors& t) {
      ops.row_products({.x = t[0], .y = t[1], .sums = t[2], .w = t[3], .gain_offset = 1});
    });
    compare("rms_norm of a part", {x, w, x, rstd, squares}, [&](Ops& ops, Tensors& t) {
      ops.rms_norm({.x = t[0], .w = t[1], .y = t[2], .rstd = t[3], .squares = t[4], .width = 3 * columns});
    });
    compare("its dx", {dy, x, w, squares, x, squares}, [&](Ops& ops, Tensors& t) {
      ops.rms_norm_backward_input(
          {.dy = t[0], .x = t[1], .w = t[2], .rstd = t[3], .dx = t[4], .products = t[5], .width = 3 * columns});
    });
  }
}

TEST_P(OpsConformance, SoftCaps) {
  for (const std::int64_t count : {0, 1, 7, 64, 1001, 4096}) {
    const Numbers x = random({count}, 1, 40.0), y = random({count}, 2, 10.0), dx = random({count}, 3);
    compare(fmt::format("soft_cap of {}", count), {x},
            [](Ops& ops, Tensors& t) { ops.soft_cap({.x = t[0], .cap = 30}); });
    for (const Numbers& logits : {y, Numbers::random(sums, {count}, 4)})
      compare(fmt::format("soft_cap_backward of {}", count), {dx, logits},
              [](Ops& ops, Tensors& t) { ops.soft_cap_backward({.dx = t[0], .y = t[1], .cap = 30}); });
  }
}

TEST_P(OpsConformance, Clips) {
  for (const std::int64_t count : {0, 1, 7, 64, 1001, 4096}) {
    for (const double limit : {0.7, 1.5}) {
      const Numbers x = random({count}, 1), dx = random({count}, 3);
      compare(fmt::format("clip of {}", count), {x},
              [=](Ops& ops, Tensors& t) { ops.clip({.x = t[0], .limit = limit}); });
      // Of what was clipped, and of its result.
      compare(fmt::format("clip_backward of {}", count), {dx, x},
              [=](Ops& ops, Tensors& t) { ops.clip_backward({.dx = t[0], .x = t[1], .limit = limit}); });
      compare(fmt::format("clip and clip_backward of {}", count), {dx, x}, [=](Ops& ops, Tensors& t) {
        ops.clip({.x = t[1], .limit = limit});
        ops.clip_backward({.dx = t[0], .x = t[1], .limit = limit});
      });
    }
  }
}

// Rows that many threads share, that are too wide for what these can keep, and that do not start at multiples of 16
// bytes.
TEST_P(OpsConformance, NormsOfWideRows) {
  for (const std::int64_t columns : {2050, 2051, 5120, 16384}) {
    const std::int64_t rows = columns == 5120 ? 21 : 2;
    const std::string sizes = fmt::format(" [{}, {}]", rows, columns);
    const Numbers x = random({rows, columns}, 1, 2.0), w = random({columns}, 2), dy = random({rows, columns}, 3),
                  past = random({rows, columns}, 4);
    Tensors forward = {x, past, w, w, x, statistics({rows}), statistics({rows})};
    const auto layer_norm = [](Ops& ops, Tensors& t) {
      ops.layer_norm({.x = t[0], .w = t[2], .b = t[3], .y = t[4], .mean = t[5], .rstd = t[6], .residual = t[1]});
    };
    compare("layer_norm" + sizes, forward, layer_norm);
    compare("rms_norm" + sizes, {x, w, x, statistics({rows})},
            [](Ops& ops, Tensors& t) { ops.rms_norm({.x = t[0], .w = t[1], .y = t[2], .rstd = t[3]}); });
    ReferenceOps reference;
    layer_norm(reference, forward);
    const Numbers sum = forward[0], mean = forward[5], rstd = forward[6], dw = Numbers::random(sums, {columns}, 5);
    compare("layer_norm_backward" + sizes, {dy, sum, w, mean, rstd, past, dw, dw}, [](Ops& ops, Tensors& t) {
      ops.layer_norm_backward({.dy = t[0],
                               .x = t[1],
                               .w = t[2],
                               .mean = t[3],
                               .rstd = t[4],
                               .dx = t[5],
                               .dw = t[6],
                               .db = t[7],
                               .dresidual = t[5]});
    });
    compare("rms_norm_backward" + sizes, {dy, sum, w, rstd, x, dw}, [](Ops& ops, Tensors& t) {
      ops.rms_norm_backward({.dy = t[0], .x = t[1], .w = t[2], .rstd = t[3], .dx = t[4], .dw = t[5]});
    });
    compare("rms_norm_backward_input" + sizes, {dy, sum, w, rstd, x}, [](Ops& ops, Tensors& t) {
      ops.rms_norm_backward_input({.dy = t[0], .x = t[1], .w = t[2], .rstd = t[3], .dx = t[4]});
    });
  }
}

TEST_P(OpsConformance, Rope) {
  for (const std::int64_t C : {2, 6, 64})
    for (const std::int64_t T : {0, 1, 50}) {
      const Tensors tensors = {random({2, T, 3, C}, 1), random({2, T, 3, C}, 2), Numbers::random(sums, {60, C / 2}, 3),
                               Numbers::random(sums, {60, C / 2}, 4)};
      for (const bool inverse : {false, true}) {
        compare("rope", tensors, [&](Ops& ops, Tensors& t) {
          ops.rope({.x = t[0], .y = t[1], .cos = t[2], .sin = t[3], .inverse = inverse, .first_position = 9});
        });
        compare("rope in place", tensors, [&](Ops& ops, Tensors& t) {
          ops.rope({.x = t[0], .y = t[0], .cos = t[2], .sin = t[3], .inverse = inverse});
        });
      }
    }
}

TEST_P(OpsConformance, RopeOfAPartOfTheColumns) {
  for (const std::int64_t R : {2, 6, 32}) {
    const std::int64_t C = R + 8;
    std::vector<std::int32_t> positions(20);
    for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::int32_t>(i * 13 % 30);
    const Tensors tensors = {random({2, 10, 3, C}, 1), Numbers::random(sums, {12, R / 2}, 3),
                             Numbers::random(sums, {12, R / 2}, 4), Numbers::tokens(positions),
                             Numbers::random(DType::float64, {R / 2}, 5)};
    compare("rope of a part", tensors,
            [](Ops& ops, Tensors& t) { ops.rope({.x = t[0], .y = t[0], .cos = t[1], .sin = t[2]}); });
    compare("rope of a part, of given positions", tensors, [](Ops& ops, Tensors& t) {
      ops.rope({.x = t[0],
                .y = t[0],
                .cos = {},
                .sin = {},
                .positions = t[3],
                .frequencies = t[4],
                .scale = 1.25,
                .growth = 0.3,
                .period = 4});
    });
  }
}

TEST_P(OpsConformance, RopeOfGivenPositions) {
  for (const std::int64_t C : {2, 6, 64})
    for (const std::int64_t T : {0, 1, 50}) {
      std::vector<std::int32_t> positions(static_cast<std::size_t>(2 * T));
      for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::int32_t>(i * i * 7919 % 30);
      Numbers frequencies(DType::float64, {C / 2});
      for (std::int64_t i = 0; i < C / 2; ++i)
        frequencies.tensor().as<double>()[i] = std::pow(500.0, -2.0 * static_cast<double>(i) / static_cast<double>(C));
      const Tensors tensors = {random({2, T, 6, C}, 1), random({2, T, 6, C}, 2), random({2, T, 3, C}, 3),
                               Numbers::tokens(positions), frequencies};
      for (const bool inverse : {false, true})
        compare("rope of given positions", tensors, [&](Ops& ops, Tensors& t) {
          const auto turn = [&](std::size_t x, std::size_t y) {
            ops.rope({.x = t[x],
                      .y = t[y],
                      .cos = {},
                      .sin = {},
                      .inverse = inverse,
                      .positions = t[3],
                      .frequencies = t[4]});
          };
          turn(0, 1);
          turn(0, 0);
          turn(2, 2);
        });
    }
}

struct AttentionCase {
  std::int64_t B, Tq, Tk, H, K, C, group, first_head;
};

TEST_P(OpsConformance, Attention) {
  for (const auto& a :
       {AttentionCase{1, 1, 1, 1, 1, 1, 1, 0}, {2, 5, 5, 2, 2, 3, 1, 0},      {2, 130, 130, 4, 2, 16, 2, 0},
        {1, 65, 65, 3, 2, 20, 2, 1},           {1, 64, 64, 2, 1, 64, 2, 0},   {1, 1, 70, 2, 2, 8, 1, 0},
        {1, 40, 200, 2, 2, 128, 1, 0},         {1, 70, 5, 1, 1, 4, 1, 0},     {1, 257, 257, 3, 1, 17, 3, 0},
        {2, 129, 129, 5, 2, 8, 3, 1},          {1, 150, 150, 2, 2, 33, 1, 0}, {1, 3, 131, 2, 1, 5, 2, 0},
        {1, 100, 300, 1, 1, 64, 1, 0},         {1, 77, 77, 2, 1, 40, 2, 0},   {1, 97, 97, 2, 2, 80, 1, 0},
        {1, 140, 140, 3, 1, 128, 3, 0},        {1, 70, 70, 1, 1, 192, 1, 0},  {1, 70, 70, 2, 1, 96, 2, 0},
        {1, 66, 66, 1, 1, 256, 1, 0},          {0, 4, 4, 1, 1, 4, 1, 0},      {1, 0, 4, 1, 1, 4, 1, 0}}) {
    const std::string of_sizes =
        fmt::format("attention B {} Tq {} Tk {} H {} K {} C {}", a.B, a.Tq, a.Tk, a.H, a.K, a.C);
    const double scale = 1 / std::sqrt(static_cast<double>(a.C));
    const Sizes queries = {a.B, a.Tq, a.H, a.C}, keys = {a.B, a.Tk, a.K, a.C}, rows = {a.B, a.H, a.Tq};
    const Numbers q = random(queries, 1, 2.0), k = random(keys, 2, 2.0), v = random(keys, 3);
    for (const double soft_cap : {0.0, 1.5}) {
      const std::string what = fmt::format("{} soft cap {}", of_sizes, soft_cap);
      Tensors forward = {q, k, v, random(queries, 4), statistics(rows)};
      const auto attention = [&](Ops& ops, Tensors& t) {
        ops.attention({.q = t[0],
                       .k = t[1],
                       .v = t[2],
                       .out = t[3],
                       .lse = t[4],
                       .scale = scale,
                       .group = a.group,
                       .first_head = a.first_head,
                       .soft_cap = soft_cap});
      };
      compare(what, forward, attention);
      if (a.Tq != a.Tk) continue;
      ReferenceOps reference;
      attention(reference, forward);
      const auto attention_backward = [&](Ops& ops, Tensors& t) {
        ops.attention_backward({.q = t[0],
                                .k = t[1],
                                .v = t[2],
                                .out = t[3],
                                .lse = t[4],
                                .dout = t[5],
                                .dq = t[6],
                                .dk = t[7],
                                .dv = t[8],
                                .delta = t[9],
                                .scale = scale,
                                .group = a.group,
                                .first_head = a.first_head,
                                .soft_cap = soft_cap});
      };
      compare(what + " backward", {q, k, v, forward[3], forward[4], random(queries, 5), q, k, v, statistics(rows)},
              attention_backward, 1);
    }
  }
}

/// Of B sequences, for `count` positions from `first` on, where their documents begin: some have one token, some are
/// longer than tiles.
std::vector<std::int32_t> document_starts(std::int64_t B, std::int64_t first, std::int64_t count) {
  std::vector<std::int32_t> starts;
  for (std::int64_t b = 0; b < B; ++b) {
    std::int64_t begin = 0, end = 0;
    for (std::int64_t position = 0, document = b; position < first + count; ++position) {
      if (position == end) {
        begin = end;
        end += std::array{30, 1, 2, 85, 7, 66, 210}[static_cast<std::size_t>(document++ % 7)];
      }
      if (position >= first) starts.push_back(static_cast<std::int32_t>(begin));
    }
  }
  return starts;
}

/// Of every query at first_query + i, the range of the keys from first_key on that it sees, as rows of Tk keys.
struct KeyRanges {
  Numbers begin = Numbers::tokens({}), end = Numbers::tokens({});
  std::int64_t num_pairs = 0;

  [[nodiscard]] AttentionMask mask(const Tensor& from, const Tensor& to) const {
    return {.begin = from, .end = to, .num_pairs = num_pairs};
  }
};
KeyRanges key_ranges(std::int64_t B, std::int64_t first_query, std::int64_t Tq, std::int64_t first_key, std::int64_t Tk,
                     bool has_documents, std::int64_t window) {
  std::vector<std::int32_t> begin = document_starts(B, first_query, Tq), end;
  KeyRanges ranges;
  for (std::size_t n = 0; n < begin.size(); ++n) {
    const std::int64_t position = first_query + static_cast<std::int64_t>(n) % Tq;
    const auto row = [&](std::int64_t at) {
      return static_cast<std::int32_t>(std::clamp<std::int64_t>(at - first_key, 0, Tk));
    };
    const std::int64_t first =
        std::max<std::int64_t>(has_documents ? begin[n] : 0, window > 0 ? position - window + 1 : 0);
    begin[n] = row(first);
    end.push_back(row(position + 1));
    ranges.num_pairs += end.back();
  }
  ranges.begin = Numbers::tokens(begin);
  ranges.end = Numbers::tokens(end);
  return ranges;
}

// Sequences of documents, sliding windows, and keys that lie before the queries, behind them and across.
TEST_P(OpsConformance, AttentionUnderMasks) {
  struct Case {
    AttentionCase sizes;
    std::int64_t first_query, first_key;
  };
  for (const auto& [a, first_query, first_key] : {Case{{2, 70, 70, 3, 2, 16, 2, 1}, 0, 0},
                                                  {{1, 200, 200, 1, 1, 9, 2, 0}, 0, 0},
                                                  {{1, 64, 64, 1, 1, 72, 1, 0}, 0, 0},
                                                  {{1, 150, 150, 2, 1, 80, 2, 0}, 0, 0},
                                                  {{1, 45, 170, 1, 1, 192, 1, 0}, 90, 10},
                                                  {{2, 70, 65, 1, 1, 8, 2, 0}, 100, 40},
                                                  {{1, 3, 130, 1, 1, 16, 1, 0}, 220, 3},
                                                  {{1, 90, 33, 1, 1, 8, 1, 0}, 10, 40},
                                                  {{1, 5, 7, 1, 1, 3, 1, 0}, 0, 50},
                                                  // More keys than are packed at once, for few kv heads and many.
                                                  {{1, 1100, 2200, 1, 1, 8, 1, 0}, 1100, 0},
                                                  {{1, 70, 4200, 4, 4, 8, 1, 0}, 4130, 0}})
    for (const auto& [has_documents, window] :
         {std::pair(true, 0), std::pair(false, 0), std::pair(false, 50), std::pair(true, 70)}) {
      const std::string what = fmt::format("attention of queries {} + {} to keys {} + {}, documents {}, window {}",
                                           first_query, a.Tq, first_key, a.Tk, has_documents, window);
      const KeyRanges ranges = key_ranges(a.B, first_query, a.Tq, first_key, a.Tk, has_documents, window);
      const Sizes queries = {a.B, a.Tq, a.H, a.C}, keys = {a.B, a.Tk, a.K, a.C}, rows = {a.B, a.H, a.Tq};
      const Numbers q = random(queries, 1, 2.0), k = random(keys, 2, 2.0), v = random(keys, 3);
      const auto attention = [&](Ops& ops, Tensors& t) {
        ops.attention({.q = t[0],
                       .k = t[1],
                       .v = t[2],
                       .out = t[3],
                       .lse = t[4],
                       .scale = 0.3,
                       .group = a.group,
                       .first_head = a.first_head,
                       .mask = ranges.mask(t[5], t[6])});
      };
      Tensors forward = {q, k, v, random(queries, 4), statistics(rows), ranges.begin, ranges.end};
      compare(what, forward, attention);
      ReferenceOps reference;
      attention(reference, forward);
      // Rows that see nothing of these keys may see others.
      for (std::int64_t i = 0; i < forward[4].count(); ++i) forward[4].set(i, std::max(forward[4].get(i), 0.0) + 0.5);
      compare(
          what + " backward",
          {q, k, v, forward[3], forward[4], random(queries, 5), ranges.begin, ranges.end, q, k, v, statistics(rows)},
          [&](Ops& ops, Tensors& t) {
            ops.attention_backward({.q = t[0],
                                    .k = t[1],
                                    .v = t[2],
                                    .out = t[3],
                                    .lse = t[4],
                                    .dout = t[5],
                                    .dq = t[8],
                                    .dk = t[9],
                                    .dv = t[10],
                                    .delta = t[11],
                                    .scale = 0.3,
                                    .group = a.group,
                                    .first_head = a.first_head,
                                    .mask = ranges.mask(t[6], t[7])});
          },
          1);
    }
}

TEST_P(OpsConformance, MergedAttention) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const DType out_dtype : gradient_dtypes())
    for (const Sizes& sizes : {Sizes{2, 3, 2, 5}, {1, 7, 3, 64}, {1, 2, 1, 100}, {0, 2, 1, 4}}) {
      const Sizes rows = {sizes[0], sizes[2], sizes[1]};
      Numbers lse = Numbers::random(sums, rows, 1, 3.0), part_lse = Numbers::random(sums, rows, 2, 3.0);
      if (sizes[1] == 7) {
        for (const std::int64_t nothing : {0, 3}) lse.set(nothing, -infinity);
        for (const std::int64_t nothing : {0, 5}) part_lse.set(nothing, -infinity);
        lse.set(8, 1000);
      }
      compare("merge_attention", {Numbers::random(out_dtype, sizes, 3), lse, random(sizes, 4), part_lse},
              [](Ops& ops, Tensors& t) {
                ops.merge_attention({.out = t[0], .lse = t[1], .part = t[2], .part_lse = t[3]});
              });
    }
}

// N tokens of P parts with W values, of which `copies` receivers get each; back, what they give is added.
TEST_P(OpsConformance, HeadsThatAreExchanged) {
  struct Case {
    std::int64_t N, P, W, copies;
  };
  for (const auto& [N, P, W, copies] :
       {Case{5, 2, 8, 1}, {7, 3, 5, 2}, {300, 4, 64, 1}, {130, 2, 100, 4}, {0, 2, 4, 2}}) {
    const std::string sizes = fmt::format(" [{}, {}, {}] x {}", N, P, W, copies);
    const std::int64_t of_each = copies;
    compare("split_heads" + sizes, {random({N, P, W}, 1), random({P * copies, N, W}, 2)},
            [=](Ops& ops, Tensors& t) { ops.split_heads({.x = t[0], .y = t[1], .copies = of_each}); });
    compare("join_heads" + sizes, {random({P * copies, N, W}, 1), random({N, P, W}, 2)},
            [=](Ops& ops, Tensors& t) { ops.join_heads({.x = t[0], .y = t[1], .copies = of_each}); });
  }
}

// N tokens, H heads, R rotary columns, P others of a key, V columns of a value.
TEST_P(OpsConformance, ExpandedLatents) {
  struct Case {
    std::int64_t N, H, R, P, V;
  };
  for (const auto& [N, H, R, P, V] : {Case{1, 1, 2, 1, 1}, {7, 3, 4, 2, 5}, {130, 16, 64, 128, 128}, {0, 2, 4, 4, 8}}) {
    const std::int64_t C = R + P, W = P + V;
    const std::string sizes = fmt::format(" [{}, {}] x {} + {}, {}", N, H, R, P, V);
    compare("expand_latents" + sizes,
            {random({N, H, W}, 1), random({N, R}, 2), random({N, H, C}, 3), random({N, H, C}, 4)},
            [](Ops& ops, Tensors& t) { ops.expand_latents({.x = t[0], .rope = t[1], .k = t[2], .v = t[3]}); });
    compare(
        "expand_latents_backward" + sizes,
        {random({N, H, C}, 1), random({N, H, C}, 2), random({N, H, W}, 3), random({N, R}, 4)},
        [](Ops& ops, Tensors& t) { ops.expand_latents_backward({.dk = t[0], .dv = t[1], .dx = t[2], .drope = t[3]}); });
    for (const auto& [from, to] : {std::pair(C, V), std::pair(V, C)})
      compare(fmt::format("resize_rows{} from {} to {}", sizes, from, to),
              {random({N, H, from}, 1), random({N, H, to}, 2)},
              [](Ops& ops, Tensors& t) { ops.resize_rows({.x = t[0], .y = t[1]}); });
  }
}

TEST_P(OpsConformance, GatheredRows) {
  for (const std::int64_t N : {0, 1, 7, 700})
    for (const std::int64_t W : {1, 8, 33}) {
      std::vector<std::int32_t> rows(static_cast<std::size_t>(N));
      for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = i % 5 == 4 ? -1 : static_cast<std::int32_t>(i * 17 % 11);
      compare(fmt::format("gather_rows [{}, {}]", N, W), {random({11, W}, 1), Numbers::tokens(rows), random({N, W}, 2)},
              [](Ops& ops, Tensors& t) { ops.gather_rows({.x = t[0], .index = t[1], .y = t[2]}); });
    }
}

// Ring attention on one rank: blocks of the keys come by in any order, and their parts add up to attention to the whole
// sequence, forward and backward.
TEST_P(OpsConformance, AttentionToBlocksOfKeysIsThatToAll) {
  constexpr std::int64_t T = 90, H = 2, K = 1, C = 8;
  struct Block {
    std::int64_t first, count;
  };
  const Block blocks[] = {{20, 1}, {0, 20}, {87, 3}, {21, 66}};
  const auto of_block = [](const Tensor& x, const Block& block) {
    return x.reshaped({T, K, C}).rows(block.first, block.count).reshaped({1, block.count, K, C});
  };
  for (const bool has_documents : {false, true}) {
    const Sizes queries = {1, T, H, C}, keys = {1, T, K, C}, rows = {1, H, T};
    const Numbers starts = Numbers::tokens(document_starts(1, 0, T));
    std::vector<KeyRanges> ranges;
    for (const Block& block : blocks) ranges.push_back(key_ranges(1, 0, T, block.first, block.count, has_documents, 0));
    const auto mask = [&](const Tensors& t, std::size_t block) {
      return ranges[block].mask(t[14 + 2 * block], t[15 + 2 * block]);
    };
    // q, k, v, dout, out, lse, starts, dq, dk, dv, and scratch: part or dq of a block, its lse, delta; out in the
    // format of q; the ranges of each block
    const Tensors tensors = {random(queries, 1, 2.0),
                             random(keys, 2, 2.0),
                             random(keys, 3),
                             random(queries, 4),
                             Numbers::random(sums, queries, 5),
                             statistics(rows),
                             starts,
                             Numbers::random(sums, queries, 6),
                             random(keys, 7),
                             random(keys, 8),
                             random(queries, 9),
                             statistics(rows),
                             statistics(rows)};
    const auto in_blocks = [&](Ops& ops, Tensors& t) {
      ops.fill(t[4], 0);
      ops.fill(t[5], -std::numeric_limits<double>::infinity());
      for (std::size_t n = 0; n < std::size(blocks); ++n) {
        const Tensor k = of_block(t[1], blocks[n]), v = of_block(t[2], blocks[n]);
        ops.attention(
            {.q = t[0], .k = k, .v = v, .out = t[10], .lse = t[11], .scale = 0.25, .group = H / K, .mask = mask(t, n)});
        ops.merge_attention({.out = t[4], .lse = t[5], .part = t[10], .part_lse = t[11]});
      }
      ops.fill(t[7], 0);
      ops.copy(t[13], t[4]);  // gradients read out in the format of q
      for (std::size_t n = 0; n < std::size(blocks); ++n) {
        ops.attention_backward({.q = t[0],
                                .k = of_block(t[1], blocks[n]),
                                .v = of_block(t[2], blocks[n]),
                                .out = t[13],
                                .lse = t[5],
                                .dout = t[3],
                                .dq = t[10],
                                .dk = of_block(t[8], blocks[n]),
                                .dv = of_block(t[9], blocks[n]),
                                .delta = t[12],
                                .scale = 0.25,
                                .group = H / K,
                                .mask = mask(t, n)});
        ops.add(t[7], t[7], t[10]);
      }
    };
    Tensors whole = tensors, with_copy = tensors;
    with_copy.push_back(random(queries, 10));
    for (const KeyRanges& each : ranges) with_copy.insert(with_copy.end(), {each.begin, each.end});
    const Tensors actual = run(with_copy, in_blocks);
    ReferenceOps reference;
    Numbers out = random(queries, 10), dq = random(queries, 11);
    const AttentionMask all = {.begin = has_documents ? starts.tensor() : Tensor()};
    reference.attention({.q = whole[0],
                         .k = whole[1],
                         .v = whole[2],
                         .out = out,
                         .lse = whole[5],
                         .scale = 0.25,
                         .group = H / K,
                         .mask = all});
    reference.attention_backward({.q = whole[0],
                                  .k = whole[1],
                                  .v = whole[2],
                                  .out = out,
                                  .lse = whole[5],
                                  .dout = whole[3],
                                  .dq = dq,
                                  .dk = whole[8],
                                  .dv = whole[9],
                                  .delta = whole[12],
                                  .scale = 0.25,
                                  .group = H / K,
                                  .mask = all});
    reference.copy(whole[4], out);
    reference.copy(whole[7], dq);
    const double tolerance = 2 * GetParam().slack * tolerance_of(dtype);  // of as many roundings as there are blocks
    for (const std::size_t i : {4UL, 5UL, 7UL, 8UL, 9UL})
      expect_near(actual[i], whole[i], tolerance, fmt::format("documents {}, tensor {}", has_documents, i));
  }
}

// Few heads, many and grouped ones, an odd number of tiles, and work enough for all threads.
// The running maximum is replaced often, and by much: every key points more in the direction of the queries than those
// before it.
TEST_P(OpsConformance, AttentionOfScoresThatGrow) {
  const Sizes sizes = {1, 300, 1, 8};
  Numbers q = random(sizes, 1), k = random(sizes, 2), v = random(sizes, 3);
  for (std::int64_t i = 0; i < 300; ++i) {
    q.set(i * 8, 1.0);
    k.set(i * 8, 0.3 * static_cast<double>(i % 250));  // 75 in all, where e^75 is 4e32
  }
  compare("attention of growing scores", {q, k, v, random(sizes, 4), statistics({1, 1, 300})},
          [](Ops& ops, Tensors& t) { ops.attention({.q = t[0], .k = t[1], .v = t[2], .out = t[3], .lse = t[4]}); });
}

// A score of minus infinity is a probability of zero, one of infinity has none.
TEST_P(OpsConformance, AttentionOfInfiniteScores) {
  const Sizes sizes = {1, 90, 1, 4};
  Numbers q = random(sizes, 1), k = random(sizes, 2);
  for (std::int64_t i = 0; i < 90; ++i) q.set(i * 4, 1.0);
  for (const std::int64_t key : {1, 7, 66}) k.set(key * 4, -std::numeric_limits<double>::infinity());
  k.set(80 * 4, std::numeric_limits<double>::infinity());
  compare("attention of infinite scores", {q, k, random(sizes, 3), random(sizes, 4), statistics({1, 1, 90})},
          [](Ops& ops, Tensors& t) { ops.attention({.q = t[0], .k = t[1], .v = t[2], .out = t[3], .lse = t[4]}); });
}

// Zero times NaN is NaN, so a value may reach queries of its tile that do not see it; it is never lost, and never
// reaches earlier tiles.
TEST_P(OpsConformance, NaNReachesTheQueriesThatSeeIt) {
  const Sizes sizes = {1, 100, 1, 16};
  Numbers k = random(sizes, 2), v = random(sizes, 3), out = random(sizes, 4), lse = statistics({1, 1, 100});
  k.set(70 * 16 + 2, std::numeric_limits<double>::quiet_NaN());
  v.set(90 * 16 + 3, std::numeric_limits<double>::quiet_NaN());
  const Tensors after = run({random(sizes, 1), k, v, out, lse}, [](Ops& ops, Tensors& t) {
    ops.attention({.q = t[0], .k = t[1], .v = t[2], .out = t[3], .lse = t[4]});
  });
  out = after[3];
  lse = after[4];
  for (std::int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(std::isnan(lse.get(i)), i >= 70) << i;
    for (std::int64_t c = 0; c < 16; ++c) {
      const bool is_nan = std::isnan(out.get(i * 16 + c));
      EXPECT_TRUE(i >= 70 ? is_nan : !is_nan || (i >= 64 && c == 3)) << i << ", " << c;
    }
  }
}

TEST_P(OpsConformance, Activations) {
  for (const auto& [rows, columns] :
       {std::array<std::int64_t, 2>{0, 7}, {5, 0}, {1, 1}, {1, 7}, {3, 16}, {40, 1001}, {333, 100}, {130, 264}}) {
    const std::string sizes = fmt::format(" [{}, {}]", rows, columns);
    const Numbers x = random({rows, columns}, 1, 3.0), up = random({rows, columns}, 2), dy = random({rows, columns}, 3),
                  bias = random({columns}, 4);
    compare("gelu" + sizes, {x, x}, [](Ops& ops, Tensors& t) { ops.gelu({.x = t[0], .y = t[1]}); });
    compare("gelu with bias" + sizes, {x, bias},
            [](Ops& ops, Tensors& t) { ops.gelu({.x = t[0], .y = t[0], .bias = t[1]}); });
    compare("gelu_backward" + sizes, {x, dy, x},
            [](Ops& ops, Tensors& t) { ops.gelu_backward({.dy = t[1], .x = t[0], .dx = t[2]}); });
    for (const DType g : gradient_dtypes())
      compare("gelu_backward with bias in place" + sizes, {x, dy, bias, Numbers::random(g, {columns}, 5)},
              [](Ops& ops, Tensors& t) {
                ops.gelu_backward({.dy = t[1], .x = t[0], .dx = t[0], .bias = t[2], .dbias = t[3], .y = t[1]});
              });
    compare("gelu by erf" + sizes, {x, bias},
            [](Ops& ops, Tensors& t) { ops.gelu({.x = t[0], .y = t[0], .bias = t[1], .kind = GeluKind::erf}); });
    compare("gelu_backward by erf" + sizes, {x, dy, bias, Numbers::random(sums, {columns}, 5)},
            [](Ops& ops, Tensors& t) {
              ops.gelu_backward(
                  {.dy = t[1], .x = t[0], .dx = t[0], .bias = t[2], .dbias = t[3], .y = t[1], .kind = GeluKind::erf});
            });
    compare("geglu" + sizes, {x, up, x}, [](Ops& ops, Tensors& t) {
      ops.swiglu({.gate = t[0], .up = t[1], .y = t[2], .kind = GateKind::gelu_tanh});
    });
    compare("geglu_backward in place" + sizes, {x, up, dy}, [](Ops& ops, Tensors& t) {
      ops.swiglu_backward(
          {.dy = t[2], .gate = t[0], .up = t[1], .dgate = t[0], .dup = t[1], .y = t[2], .kind = GateKind::gelu_tanh});
    });
    compare("swiglu" + sizes, {x, up, x},
            [](Ops& ops, Tensors& t) { ops.swiglu({.gate = t[0], .up = t[1], .y = t[2]}); });
    compare("swiglu_backward in place" + sizes, {x, up, dy}, [](Ops& ops, Tensors& t) {
      ops.swiglu_backward({.dy = t[2], .gate = t[0], .up = t[1], .dgate = t[0], .dup = t[1], .y = t[2]});
    });
  }
}

TEST_P(OpsConformance, ActivationsOfExtremeNumbers) {
  Numbers x(dtype, {8}), dy(dtype, {8});
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double values[8] = {0, -0.0, 60, -60, 1000, -1000, 1e-30, std::numeric_limits<double>::quiet_NaN()};
  for (int i = 0; i < 8; ++i) {
    x.set(i, values[i]);
    dy.set(i, 1);
  }
  compare("gelu", {x, x}, [](Ops& ops, Tensors& t) { ops.gelu({.x = t[0], .y = t[1]}); });
  compare("gelu_backward", {x, dy, x},
          [](Ops& ops, Tensors& t) { ops.gelu_backward({.dy = t[1], .x = t[0], .dx = t[2]}); });
  compare("gelu by erf", {x, x}, [](Ops& ops, Tensors& t) { ops.gelu({.x = t[0], .y = t[1], .kind = GeluKind::erf}); });
  compare("gelu_backward by erf", {x, dy, x},
          [](Ops& ops, Tensors& t) { ops.gelu_backward({.dy = t[1], .x = t[0], .dx = t[2], .kind = GeluKind::erf}); });
  compare("swiglu", {x, dy, x}, [](Ops& ops, Tensors& t) { ops.swiglu({.gate = t[0], .up = t[1], .y = t[2]}); });
  compare("swiglu_backward", {x, dy, x, x}, [](Ops& ops, Tensors& t) {
    ops.swiglu_backward({.dy = t[1], .gate = t[0], .up = t[1], .dgate = t[2], .dup = t[3]});
  });
  x.set(0, infinity);
  compare("sums with infinity and NaN", {x, dy}, [](Ops& ops, Tensors& t) { ops.add(t[1], t[0], t[1]); });
  compare("rounding infinity and NaN", {x, Numbers(DType::bfloat16, {8})},
          [](Ops& ops, Tensors& t) { ops.copy(t[1], t[0]); });
}

struct LogitsCase {
  DType dtype;
  std::int64_t V, padding;
};
std::vector<LogitsCase> logits_cases(const std::vector<DType>& dtypes) {
  std::vector<LogitsCase> cases;
  for (const DType dtype : dtypes)
    for (const std::int64_t V : {1, 5, 16, 1000})
      for (const std::int64_t padding : {0, 1, 3}) cases.push_back({dtype, V, padding});
  return cases;
}

TEST_P(OpsConformance, CrossEntropy) {
  for (const auto& [logits_dtype, V, padding] : logits_cases(gradient_dtypes())) {
    const std::int64_t N = 40, valid = std::max<std::int64_t>(0, V - padding);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(N));
    for (std::size_t n = 0; n < ids.size(); ++n)
      ids[n] = n % 7 == 0 ? ignored_target : static_cast<std::int32_t>(n * 37 % 1200);
    Tensors tensors = {Numbers::random(logits_dtype, {N, V}, 1, 3.0),
                       statistics({N}),
                       Numbers::tokens(ids),
                       statistics({N}),
                       statistics({N}),
                       statistics({N}),
                       Numbers(DType::float64, {1}),
                       Numbers::random(sums, {N}, 2),
                       Numbers(dtype, {N, V})};
    if (V > 5) tensors[0].set(2 * V + 3, std::numeric_limits<double>::quiet_NaN());
    const bool is_in_place = dtype == logits_dtype && padding == 1, are_logits_left = is_half_dtype(logits_dtype);
    compare(fmt::format("cross entropy of {} columns of {}, {} valid", V, name_of(logits_dtype), valid), tensors,
            [&](Ops& ops, Tensors& t) {
              ops.row_exp({.logits = t[0],
                           .targets = t[2],
                           .max = t[1],
                           .sum = t[3],
                           .target_logit = t[4],
                           .first_column = 100,
                           .valid_columns = valid});
              ops.rescale_sums({.sum = t[3], .max = t[1], .row_max = t[7]});  // as if another shard had larger logits
              ops.cross_entropy(
                  {.max = t[7], .sum = t[3], .target_logit = t[4], .targets = t[2], .lse = t[5], .loss_sum = t[6]});
              if (valid == 0) ops.fill(t[5], 0.5);  // of a row that lies in other shards alone
              const Tensor dlogits = is_in_place ? t[0].tensor() : t[8].tensor();
              ops.cross_entropy_backward({.exps = t[0],
                                          .max = t[1],
                                          .lse = t[5],
                                          .targets = t[2],
                                          .dlogits = dlogits,
                                          .first_column = 100,
                                          .valid_columns = valid,
                                          .scale = 0.25});
              if (!is_in_place && !are_logits_left)
                ops.fill(t[0], 0.0);  // exponentials or logits, as the backend likes
            });
  }
}

// Rows that no block of threads holds at once, whose largest logit comes late and in small steps, after many that are
// minus infinity.
TEST_P(OpsConformance, CrossEntropyOfWideRows) {
  const std::int64_t N = 2, V = 18'003;
  Numbers loss_scale(DType::float64, {1});
  loss_scale.set(0, 3);
  Numbers logits = Numbers::random(dtype, {N, V}, 1, 3.0);
  for (std::int64_t j = 0; j < V; ++j) {
    logits.set(j, j < 9'000 ? -std::numeric_limits<double>::infinity() : logits.get(j));
    logits.set(V + j, logits.get(V + j) + 0.01 * static_cast<double>(j));
  }
  const Tensors tensors = {logits,          statistics({N}), Numbers::tokens({9'007, 17'999}), statistics({N}),
                           statistics({N}), statistics({N}), Numbers(DType::float64, {1}),     Numbers(dtype, {N, V}),
                           loss_scale};
  compare("cross entropy of wide rows", tensors, [&](Ops& ops, Tensors& t) {
    ops.row_exp(
        {.logits = t[0], .targets = t[2], .max = t[1], .sum = t[3], .target_logit = t[4], .valid_columns = V - 2});
    ops.cross_entropy({.max = t[1], .sum = t[3], .target_logit = t[4], .targets = t[2], .lse = t[5], .loss_sum = t[6]});
    ops.cross_entropy_backward({.exps = t[0],
                                .max = t[1],
                                .lse = t[5],
                                .targets = t[2],
                                .dlogits = t[7],
                                .loss_scale = t[8],
                                .valid_columns = V - 2,
                                .scale = 0.25});
    if (dtype == sums) ops.fill(t[0], 0.0);
  });
}

TEST_P(OpsConformance, GradientFactor) {
  for (const double squares : {0.0, 1e-6, 7.25, 1e12, std::numeric_limits<double>::infinity(), std::nan("")})
    for (const double num_targets : {0.0, 3.0, 1000.0})
      for (const double max_norm : {0.0, 1.0})
        for (const bool is_scaled : {false, true}) {
          const auto number = [](double x) {
            Numbers one(DType::float64, {1});
            one.set(0, x);
            return one;
          };
          const auto form = [&](Ops& ops, Tensors& t) {
            ops.gradient_factor({.sum_of_squares = t[0],
                                 .num_targets = t[1],
                                 .norm = t[2],
                                 .factor = t[3],
                                 .loss_scale = is_scaled ? t[4].tensor() : Tensor(),
                                 .expected_targets = 640,
                                 .max_norm = max_norm});
          };
          Tensors expected = {number(squares), number(num_targets), number(-1), number(-1), number(1024)};
          const Tensors actual = run(expected, form);
          ReferenceOps reference;
          form(reference, expected);
          for (const std::size_t i : {2UL, 3UL}) {
            const double a = actual[i].get(0), b = expected[i].get(0);
            EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b)))
                << a << " " << b << ": " << squares << " " << num_targets << " " << max_norm;
          }
        }
}

/// AdamWScalars of an update.
Numbers adamw_scalars(const AdamWScalars& now) {
  Numbers numbers(DType::float64, {num_adamw_scalars});
  std::int64_t i = 0;
  for (const double number : {now.lr, now.step_size, now.sqrt_bias2, now.step, now.grad_scale})
    numbers.set(i++, number);
  return numbers;
}

TEST_P(OpsConformance, AdamW) {
  for (const std::int64_t count : {0, 1, 17, 40'001})
    for (const DType g : gradient_dtypes()) {
      Tensors tensors = {
          random({count}, 1),
          Numbers::random(sums, {count}, 2),
          Numbers::random(g, {count}, 3),
          Numbers::random(sums, {count}, 4, 0.1),
          statistics({count}),
          adamw_scalars({.lr = 0.01, .step_size = 0.037, .sqrt_bias2 = 0.377, .step = 3, .grad_scale = 0.5})};
      for (std::int64_t i = 0; i < count; ++i) tensors[4].set(i, 0.01 + std::abs(tensors[3].get(i)));  // v is positive
      compare("adamw", tensors, [](Ops& ops, Tensors& t) {
        ops.adamw({.param = t[0],
                   .master = t[1],
                   .grad = t[2],
                   .m = t[3],
                   .v = t[4],
                   .scalars = t[5],
                   .beta1 = 0.9,
                   .beta2 = 0.95,
                   .eps = 1e-8,
                   .weight_decay = 0.1});
      });
    }
}

TEST_P(OpsConformance, AdamWLeavesEverythingWhereGradientsAreNotFinite) {
  for (const DType moment : {sums, sums == DType::float32 ? DType::bfloat16 : sums}) {
    const Tensors before = {random({19}, 1),
                            Numbers::random(sums, {19}, 2),
                            Numbers::random(sums, {19}, 3),
                            Numbers::random(moment, {19}, 4),
                            Numbers::random(moment, {19}, 5),
                            adamw_scalars({.lr = 0.01, .step_size = 0.01, .grad_scale = std::nan("")})};
    const Tensors after = run(before, [](Ops& ops, Tensors& t) {
      ops.adamw({.param = t[0],
                 .master = t[1],
                 .grad = t[2],
                 .m = t[3],
                 .v = t[4],
                 .scalars = t[5],
                 .beta1 = 0.9,
                 .beta2 = 0.95,
                 .eps = 1e-8});
    });
    for (std::size_t i = 0; i < 5 && !after.empty(); ++i) EXPECT_TRUE(after[i] == before[i]) << i;
  }
}

// Numbers whose moments every backend forms exactly, so that the bits after their rounding are those of the reference:
// in flat tensors and in rows of a slice.
TEST_P(OpsConformance, AdamWRoundsMomentsAlike) {
  if (sums != DType::float32) return;
  // From the slice's element `first` on, columns of a parameter.
  const auto columns_from = [](std::int64_t first, std::int64_t column, std::int64_t num_columns) {
    return TensorSlice({1'000, 20}, 1, {column, num_columns}).elements({first, 5'000});
  };
  for (const std::int64_t count : {0, 1, 18, 4'100})
    for (const RoundingNoise& noise : {RoundingNoise{.stream = 7, .key = 3},  // which the step joins
                                       {.stream = 7, .key = 3, .slice = columns_from(5, 2, 9)},
                                       {.stream = 7, .key = 3, .slice = columns_from(4, 12, 8)}}) {
      Tensors tensors = {random({count}, 1),
                         Numbers::random(sums, {count}, 2),
                         Numbers(DType::float32, {count}),
                         Numbers(DType::bfloat16, {count}),
                         Numbers(DType::bfloat16, {count}),
                         adamw_scalars({.lr = 0.01, .step_size = 0.02, .sqrt_bias2 = 0.5, .step = 41})};
      for (std::int64_t i = 0; i < count; ++i) {
        tensors[2].set(i, static_cast<double>(i * 37 % 255 - 127) / 64);
        tensors[3].set(i, static_cast<double>(i * 53 % 511 - 255) / 256);
        tensors[4].set(i, static_cast<double>(i * 29 % 255 + 1) / 256);
      }
      const auto adamw = [&](Ops& ops, Tensors& t) {
        ops.adamw({.param = t[0],
                   .master = t[1],
                   .grad = t[2],
                   .m = t[3],
                   .v = t[4],
                   .scalars = t[5],
                   .beta1 = 0.5,
                   .beta2 = 0.5,
                   .eps = 1e-3,
                   .noise = noise});
      };
      compare("adamw with moments in bfloat16", tensors, adamw);
      Tensors expected = tensors;
      ReferenceOps reference;
      adamw(reference, expected);
      const Tensors actual = run(tensors, adamw);
      if (actual.empty()) return;
      for (const std::size_t moment : {3UL, 4UL})
        EXPECT_TRUE(actual[moment] == expected[moment]) << count << ", tensor " << moment;
    }
}

// Halves of a master give what the master gives, to the bit, and a parameter that is next to it.
TEST_P(OpsConformance, AdamWKeepsWhatParametersLack) {
  if (dtype != DType::bfloat16) return;
  for (const std::int64_t count : {0, 1, 18, 4'100}) {
    Tensors wide = {random({count}, 1),
                    Numbers(DType::float32, {count}),
                    Numbers::random(sums, {count}, 3),
                    Numbers::random(sums, {count}, 4, 0.1),
                    statistics({count}),
                    adamw_scalars({.lr = 0.01, .step_size = 1e-4, .sqrt_bias2 = 0.5, .step = 3})};
    Tensors split_in_two = wide;
    split_in_two[1] = Numbers(DType::int16, {count});
    for (std::int64_t i = 0; i < count; ++i) {
      const auto remainder = static_cast<std::int16_t>(i * 7919 - 32768);
      split_in_two[1].tensor().as<std::int16_t>()[i] = remainder;
      wide[1].tensor().as<float>()[i] = joined({wide[0].tensor().as<bfloat16>()[i].bits, remainder});
    }
    const auto adamw = [&](Ops& ops, Tensors& t) {
      ops.adamw({.param = t[0],
                 .master = t[1],
                 .grad = t[2],
                 .m = t[3],
                 .v = t[4],
                 .scalars = t[5],
                 .beta1 = 0.9,
                 .beta2 = 0.95,
                 .eps = 1e-8});
    };
    const Tensors expected = run(wide, adamw), actual = run(split_in_two, adamw);
    if (actual.empty()) return;
    for (std::int64_t i = 0; i < count; ++i) {
      const SplitFloat parts = split(expected[1].tensor().as<float>()[i]);
      ASSERT_EQ(actual[0].tensor().as<bfloat16>()[i].bits, parts.upper) << i;
      ASSERT_EQ(actual[1].tensor().as<std::int16_t>()[i], parts.remainder) << i;
    }
    for (const std::size_t moment : {3UL, 4UL})
      EXPECT_TRUE(actual[moment] == expected[moment]) << count << ", tensor " << moment;
  }
}

// Ranks are threads of one process, each with a backend of its own.

TEST_P(OpsConformance, UploadsAndDownloads) {
  const Numbers x = random({1000}, 1), z(dtype, {1000});
  const Tensors after = run({Numbers(dtype, {1000})}, [&](Ops& ops, Tensors& t) {
    Numbers passing = x;
    ops.upload(t[0], passing.tensor().data);
    passing = Numbers(dtype, {1000});  // the memory is the caller's again
    ops.download(z.tensor().data, t[0]);
  });
  EXPECT_TRUE(after[0] == x);
  EXPECT_TRUE(z == x);
}

}  // namespace
}  // namespace echelon
