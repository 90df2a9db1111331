// The delayed backend computes what its inner one does, and shows a result that is read too early.
#include "ops/delayed/delayed_ops.h"

#include "base/error.h"
#include "numbers.h"
#include "ops/reference/reference_ops.h"

#include <gtest/gtest.h>

#include <cmath>

namespace echelon {
namespace {

constexpr DType f32 = DType::float32;

TEST(DelayedOps, AResultReadWithoutPublishIsPoison) {
  for (unsigned seed = 0; seed < 8; ++seed) {
    DelayedOps ops(make_reference_ops(), seed);
    const Numbers x = Numbers::random(f32, {4, 4}, 1), y(f32, {4, 4});
    ops.matmul({.a = x, .b = x, .c = y});
    EXPECT_TRUE(std::isnan(y.get(0)));
    ops.publish();
    EXPECT_FALSE(std::isnan(y.get(0)));
  }
}

// A message sent from a buffer before publish() carries poison; received into a buffer that an enqueued operation still
// reads, it changes that operation's result.
TEST(DelayedOps, ABufferGivenAwayWithoutPublishSpoilsTheResult) {
  DelayedOps ops(make_reference_ops(), 3);
  const Numbers x = Numbers::random(f32, {64}, 1), y(f32, {64});
  Numbers buffer = x;
  ops.gelu({.x = buffer, .y = y});
  for (std::int64_t i = 0; i < buffer.count(); ++i) buffer.set(i, 1e6);  // what arrives
  ops.publish();
  EXPECT_EQ(y.get(0), 1e6);

  ReferenceOps reference;
  const Numbers expected(f32, {64});
  reference.gelu({.x = x, .y = expected});
  buffer = x;
  ops.gelu({.x = buffer, .y = y});
  ops.publish();
  for (std::int64_t i = 0; i < buffer.count(); ++i) buffer.set(i, 1e6);
  EXPECT_TRUE(y == expected);
}

/// A chain that reuses two buffers, adds in place and accumulates: what the poison must not disturb.
void run_chain(Ops& ops, const Numbers& w, Numbers& x, Numbers& y, Numbers& dw) {
  const Numbers rstd(f32, {8});
  for (int repeat = 0; repeat < 25; ++repeat) {
    ops.matmul({.a = x, .b = w, .c = y});
    ops.gelu({.x = y, .y = x});
    ops.scale(x, 0.5);
    ops.add(y, x, y);
    ops.swiglu_backward({.dy = w, .gate = y, .up = x, .dgate = y, .dup = x});
    ops.matmul({.a = x, .b = y, .c = dw, .transpose_a = true, .accumulates = true});
    ops.rms_norm({.x = y, .w = w.tensor().flat().rows(0, 8), .y = x, .rstd = rstd});
  }
  ops.publish();
}

TEST(DelayedOps, ComputesWhatItsInnerBackendComputes) {
  const Numbers w = Numbers::random(f32, {8, 8}, 1, 0.3);
  const Numbers start = Numbers::random(f32, {8, 8}, 2);
  ReferenceOps reference;
  Numbers x = start, y(f32, {8, 8}), dw(f32, {8, 8});
  run_chain(reference, w, x, y, dw);
  ASSERT_FALSE(std::isnan(x.get(0)));
  for (unsigned seed = 0; seed < 20; ++seed) {
    DelayedOps ops(make_reference_ops(), seed);
    Numbers late_x = start, late_y(f32, {8, 8}), late_dw(f32, {8, 8});
    run_chain(ops, w, late_x, late_y, late_dw);
    EXPECT_TRUE(late_x == x && late_y == y && late_dw == dw) << seed;
  }
}

TEST(DelayedOps, UploadAndDownloadKeepTheOrder) {
  DelayedOps ops(make_reference_ops(), 1);
  const Numbers x = Numbers::random(f32, {16}, 1), y(f32, {16}), host = Numbers::random(f32, {16}, 2), sum(f32, {16});
  ops.copy(y, x);                     // reads x before the upload
  ops.upload(x, host.tensor().data);  // and this one after
  ops.add(y, y, x);
  ops.download(sum.tensor().data, y);
  const Numbers first = Numbers::random(f32, {16}, 1);
  for (std::int64_t i = 0; i < 16; ++i)
    EXPECT_EQ(sum.get(i), static_cast<double>(static_cast<float>(first.get(i)) + static_cast<float>(host.get(i))));
}

TEST(DelayedOps, MisfitsAreFailuresAtOnce) {
  DelayedOps ops(make_reference_ops(), 1);
  const Numbers x(f32, {3}), y(f32, {4});
  EXPECT_THROW(ops.add(x, x, y), Failure);
}

}  // namespace
}  // namespace echelon
