// Operations that follow each other as in layers, of which backends may make fewer calls: matmuls of one operand with
// their biases and residuals, their gradients, rotations of queries and keys, fills of several tensors.
#include "conformance.h"

#include <fmt/format.h>

namespace echelon {
namespace {

struct ParallelCase {
  std::int64_t tokens, in, out, count;  // count: matmuls
  bool has_bias;
};
const ParallelCase parallel_cases[] = {{5, 24, 7, 2, false},  {5, 24, 7, 3, true},    {64, 32, 48, 2, false},
                                       {64, 32, 48, 3, true}, {70, 130, 90, 2, true}, {1, 1, 1, 3, true}};

Tensor part(const Tensor& x, std::int64_t i, std::int64_t rows) { return x.rows(i * rows, rows); }

TEST_P(OpsConformance, MatmulsOfOneOperandWithBiases) {
  for (const auto& [tokens, in, out, count, has_bias] : parallel_cases) {
    const Tensors tensors = {random({tokens, in}, 1), random({count * out, in}, 2), random({count * out}, 3),
                             random({count * tokens, out}, 4)};
    compare(fmt::format("{} matmuls {} x {} x {}", count, tokens, out, in), tensors, [&](Ops& ops, Tensors& t) {
      for (std::int64_t i = 0; i < count; ++i) {
        const Tensor y = part(t[3], i, tokens);
        ops.matmul({.a = t[0], .b = part(t[1], i, out), .c = y, .transpose_b = true});
        if (has_bias) ops.add_bias(y, part(t[2], i, out));
      }
    });
  }
}

TEST_P(OpsConformance, WeightGradientsOfOneOperandWithBiases) {
  for (const auto& [tokens, in, out, count, has_bias] : parallel_cases)
    for (const DType g : gradient_dtypes())
      for (const bool accumulates : {false, true}) {
        const Tensors tensors = {random({tokens, in}, 1), random({count * tokens, out}, 2),
                                 Numbers::random(g, {count * out, in}, 3), Numbers::random(g, {count * out}, 4)};
        compare(fmt::format("{} gradients {} x {} x {}", count, tokens, out, in), tensors, [&](Ops& ops, Tensors& t) {
          for (std::int64_t i = 0; i < count; ++i) {
            const Tensor dy = part(t[1], i, tokens);
            ops.matmul({.a = dy, .b = t[0], .c = part(t[2], i, out), .transpose_a = true, .accumulates = accumulates});
            if (has_bias) ops.bias_backward(dy, part(t[3], i, out));
          }
        });
      }
}

TEST_P(OpsConformance, MatmulsWithResiduals) {
  for (const auto& [tokens, in, out, count, has_bias] : parallel_cases) {
    const Tensors tensors = {random({tokens, in}, 1), random({out, in}, 2), random({out}, 3), random({tokens, out}, 4),
                             random({tokens, out}, 5)};
    for (const bool residual_first : {false, true})
      compare(fmt::format("matmul and residual {} x {} x {}", tokens, out, in), tensors, [&](Ops& ops, Tensors& t) {
        ops.matmul({.a = t[0], .b = t[1], .c = t[4], .transpose_b = true});
        if (has_bias) ops.add_bias(t[4], t[2]);
        ops.add(t[4], residual_first ? t[3] : t[4], residual_first ? t[4] : t[3]);
      });
  }
}

TEST_P(OpsConformance, RotationsOfQueriesAndKeys) {
  for (const std::int64_t C : {2, 6, 64}) {
    const Tensors tensors = {random({2, 50, 6, C}, 1), random({2, 50, 3, C}, 2), Numbers::random(sums, {60, C / 2}, 3),
                             Numbers::random(sums, {60, C / 2}, 4)};
    compare("rope of q and k", tensors, [&](Ops& ops, Tensors& t) {
      for (const std::size_t i : {0, 1}) ops.rope({.x = t[i], .y = t[i], .cos = t[2], .sin = t[3]});
    });
  }
}

TEST_P(OpsConformance, FillsAndSquaresOfManyTensors) {
  const Tensors tensors = {random({100, 3000}, 1), Numbers::random(DType::float64, {1}, 2)};
  compare("fills and squares of 100 tensors", tensors, [](Ops& ops, Tensors& t) {
    for (std::int64_t i = 0; i < 100; ++i) ops.sum_of_squares(part(t[0], i, 1).flat(), t[1]);
    for (std::int64_t i = 0; i < 100; i += 2) ops.fill(part(t[0], i, 1), 0.5);
    for (std::int64_t i = 0; i < 100; ++i) ops.sum_of_squares(part(t[0], i, 1).flat(), t[1]);
  });
}

}  // namespace
}  // namespace echelon
