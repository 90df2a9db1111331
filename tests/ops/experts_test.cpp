// A layer of experts from its operations: gradients against central differences in float64, slots against what they say
// of themselves, and what it costs.
#include "base/error.h"
#include "numbers.h"
#include "ops/reference/reference_ops.h"
#include "ops/trace/trace_ops.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

Numbers random_f64(Sizes sizes, unsigned seed) { return Numbers::random(DType::float64, sizes, seed); }
Numbers zeros_f64(Sizes sizes) { return {DType::float64, sizes}; }

// out = sum_j weights_j w2[e_j] (w1[e_j] x), with an expert that has no token, one that is elsewhere, and a token that
// has both its choices there.
TEST(Experts, GradientsOfALayer) {
  ReferenceOps ops;
  const std::int64_t N = 5, k = 2, E = 3, D = 3, F = 4, R = N * k;
  const Numbers experts = Numbers::tokens({0, 2, 3, 0, 2, 2, 3, 3, 0, 2}), slots(DType::int32, {N, k}),
                offsets(DType::int32, {E + 1});
  ops.expert_slots({.experts = experts.tensor().reshaped({N, k}), .slots = slots, .offsets = offsets});
  Numbers x = random_f64({N, D}, 1), w1 = random_f64({E, F, D}, 2), w2 = random_f64({E, F, D}, 3),
          weights = random_f64({N, k}, 4);
  const Numbers dout = random_f64({N, D}, 5), out = zeros_f64({N, D}), a = zeros_f64({R, D}), h = zeros_f64({R, F}),
                y = zeros_f64({R, D});
  const auto loss = [&] {
    ops.permute_to_experts({.x = x, .slots = slots, .y = a});
    ops.grouped_matmul({.a = a, .w = w1, .offsets = offsets, .c = h, .transpose_w = true});
    ops.grouped_matmul({.a = h, .w = w2, .offsets = offsets, .c = y});
    ops.combine_experts({.y = y, .slots = slots, .out = out, .weights = weights});
    double sum = 0;
    for (std::int64_t i = 0; i < out.count(); ++i) sum += out.get(i) * dout.get(i);
    return sum;
  };
  loss();
  const Numbers dy = zeros_f64({R, D}), dh = zeros_f64({R, F}), da = zeros_f64({R, D}), dx = zeros_f64({N, D}),
                dw1 = zeros_f64({E, F, D}), dw2 = zeros_f64({E, F, D}), dweights = zeros_f64({N, k});
  ops.combine_experts_backward(
      {.dout = dout, .y = y, .slots = slots, .weights = weights, .dy = dy, .dweights = dweights});
  ops.grouped_matmul_backward_weight({.dy = h, .x = dy, .offsets = offsets, .dw = dw2});
  ops.grouped_matmul({.a = dy, .w = w2, .offsets = offsets, .c = dh, .transpose_w = true});
  ops.grouped_matmul_backward_weight({.dy = dh, .x = a, .offsets = offsets, .dw = dw1});
  ops.grouped_matmul({.a = dh, .w = w1, .offsets = offsets, .c = da});
  ops.combine_experts({.y = da, .slots = slots, .out = dx});
  expect_gradient(x, dx, loss, "dx");
  expect_gradient(w1, dw1, loss, "dw1");
  expect_gradient(w2, dw2, loss, "dw2");
  expect_gradient(weights, dweights, loss, "dweights");
}

// By hand.
TEST(Experts, SlotsAreInTheOrderOfExpertsThenOfTokens) {
  const Numbers experts = Numbers::tokens({7, 5, 5, 9, 7, 5}), slots(DType::int32, {3, 2}), offsets(DType::int32, {4});
  ReferenceOps().expert_slots(
      {.experts = experts.tensor().reshaped({3, 2}), .slots = slots, .offsets = offsets, .first_expert = 5});
  EXPECT_EQ(slots, Numbers::tokens({3, 0, 1, -1, 4, 2}));
  EXPECT_EQ(offsets, Numbers::tokens({0, 3, 3, 5}));
}

TEST(Experts, CostAsManyFlopsAsTheirRows) {
  TraceOps ops;
  const auto traced = [](Sizes sizes, DType dtype = DType::float32) { return Tensor(nullptr, dtype, sizes); };
  const Tensor offsets = traced({4}, DType::int32);
  ops.grouped_matmul(
      {.a = traced({10, 5}), .w = traced({3, 7, 5}), .offsets = offsets, .c = traced({10, 7}), .transpose_w = true});
  ops.grouped_matmul_backward_weight(
      {.dy = traced({10, 7}), .x = traced({10, 5}), .offsets = offsets, .dw = traced({3, 7, 5})});
  EXPECT_EQ(ops.records()[0],
            (OpRecord{OpKind::grouped_matmul, DType::float32, 10, 7, 5, 2 * 10 * 7 * 5, 4 * (50 + 105 + 4 + 70)}));
  EXPECT_EQ(ops.records()[1], (OpRecord{OpKind::grouped_matmul_backward_weight, DType::float32, 7, 5, 10,
                                        2 * 10 * 7 * 5, 4 * (70 + 50 + 4 + 2 * 105)}));
  EXPECT_THROW(ops.grouped_matmul({.a = traced({10, 5}),
                                   .w = traced({4, 7, 5}),
                                   .offsets = offsets,
                                   .c = traced({10, 7}),
                                   .transpose_w = true}),
               Failure);
  EXPECT_THROW(
      ops.permute_to_experts({.x = traced({4, 5}), .slots = traced({4, 2}, DType::int32), .y = traced({9, 5})}),
      Failure);
}

}  // namespace
}  // namespace echelon
