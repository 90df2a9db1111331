// The trace's numbers against closed forms, and the checks of arguments.
#include "ops/trace/trace_ops.h"

#include "base/error.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

Tensor traced(Sizes sizes, DType dtype = DType::float32) { return {nullptr, dtype, sizes}; }

TEST(TraceOps, CountsTwoFlopsPerMultiplyAddOfAProduct) {
  TraceOps ops;
  ops.matmul({.a = traced({5, 3}), .b = traced({7, 3}), .c = traced({5, 7}), .transpose_b = true});
  ops.matmul({.a = traced({5, 7}), .b = traced({5, 3}), .c = traced({7, 3}), .transpose_a = true, .accumulates = true});
  ASSERT_EQ(ops.records().size(), 2U);
  EXPECT_EQ(ops.records()[0], (OpRecord{OpKind::matmul, DType::float32, 5, 7, 3, 2 * 5 * 7 * 3, 4 * (15 + 21 + 35)}));
  EXPECT_EQ(ops.records()[1], (OpRecord{.kind = OpKind::matmul,
                                        .dtype = DType::float32,
                                        .m = 7,
                                        .n = 3,
                                        .k = 5,
                                        .flops = 2 * 5 * 7 * 3,
                                        .bytes = 4 * (35 + 15 + 2 * 21),
                                        .is_weight_gradient = true}));
  EXPECT_EQ(ops.total_flops(), 2 * 2 * 5 * 7 * 3);
  ops.clear();
  EXPECT_EQ(ops.total_bytes(), 0);
}

TEST(TraceOps, TellsWhichProductIsAWeightGradient) {
  TraceOps ops;
  const Tensor x = traced({5, 3}), w = traced({7, 3}), dw = w, y = traced({5, 7}), dx = x;
  ops.matmul({.a = x, .b = w, .c = y, .transpose_b = true});
  ops.matmul({.a = y, .b = w, .c = dx});
  ops.matmul({.a = y, .b = x, .c = dw, .transpose_a = true});
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(ops.records().at(i).is_weight_gradient, i == 2);
}

// The papers' count for causal attention: half of T x T, plus the diagonal's half.
TEST(TraceOps, CountsTheVisiblePartOfAttention) {
  for (const std::int64_t num_queries : {0, 1, 4, 9})
    for (const std::int64_t num_keys : {0, 1, 4, 11}) {
      std::int64_t pairs = 0;
      for (std::int64_t i = 0; i < num_queries; ++i)
        for (std::int64_t j = 0; j < num_keys; ++j) pairs += j <= i + num_keys - num_queries;
      EXPECT_EQ(num_visible_pairs(num_queries, num_keys), pairs) << num_queries << " queries, " << num_keys << " keys";
    }
  TraceOps ops;
  const std::int64_t B = 2, T = 16, H = 4, K = 2, C = 8;
  const auto q = traced({B, T, H, C}), k = traced({B, T, K, C}), lse = traced({B, H, T});
  ops.attention({.q = q, .k = k, .v = k, .out = q, .lse = lse, .group = 2});
  ops.attention_backward(
      {.q = q, .k = k, .v = k, .out = q, .lse = lse, .dout = q, .dq = q, .dk = k, .dv = k, .delta = lse, .group = 2});
  EXPECT_EQ(ops.records()[0].flops, 2 * (2 * B * H * C * T * (T + 1) / 2));
  EXPECT_EQ(ops.records()[1].flops, 5 * (2 * B * H * C * T * (T + 1) / 2));
}

// Of ranges a trace has no numbers: who makes them says how many pairs there are.
TEST(TraceOps, CountsThePairsOfRanges) {
  TraceOps ops;
  const std::int64_t B = 2, T = 16, H = 4, C = 8, pairs = 77;
  const auto q = traced({B, T, H, C}), lse = traced({B, H, T}), range = Tensor(nullptr, DType::int32, {B, T});
  ops.attention(
      {.q = q, .k = q, .v = q, .out = q, .lse = lse, .mask = {.begin = range, .end = range, .num_pairs = pairs}});
  EXPECT_EQ(ops.records()[0].flops, 2 * 2 * H * pairs * C);
}

// Reads g, p, m, v and writes p, m, v: 28 bytes per parameter in float32, and 2 more for a bfloat16 copy of p, but none
// where that is one half of p.
TEST(TraceOps, AnAdamWStepTouchesEveryNumberOnce) {
  TraceOps ops;
  const auto x = traced({1000}), copy = traced({1000}, DType::bfloat16),
             scalars = traced({num_adamw_scalars}, DType::float64);
  ops.adamw({.param = x, .master = x, .grad = x, .m = x, .v = x, .scalars = scalars});
  ops.adamw({.param = copy, .master = x, .grad = x, .m = x, .v = x, .scalars = scalars});
  ops.adamw({.param = copy, .master = traced({1000}, DType::int16), .grad = x, .m = x, .v = x, .scalars = scalars});
  EXPECT_EQ(ops.records()[0].bytes, 28 * 1000);
  EXPECT_EQ(ops.records()[1].bytes, 30 * 1000);
  EXPECT_EQ(ops.records()[2].bytes, 28 * 1000);
}

TEST(Check, NamesTheOperationTheTensorAndItsSizes) {
  TraceOps ops;
  try {
    ops.matmul({.a = traced({5, 3}), .b = traced({4, 7}), .c = traced({5, 7})});
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_STREQ(failure.what(), "matmul: b is float32 [4, 7], but must share the inner size 3 with a [5, 3]");
  }
  EXPECT_THROW(ops.matmul({.a = traced({5, 3}, DType::bfloat16), .b = traced({3, 7}), .c = traced({5, 7})}), Failure);
  EXPECT_THROW(ops.add(traced({3}), traced({3}), traced({4})), Failure);
  EXPECT_TRUE(ops.records().empty());
}

}  // namespace
}  // namespace echelon
