// Attention's kernels for tensor cores by themselves: ops_test.cpp compares whatever CudaOps chooses.
#include "cuda/ops/attention.h"
#include "cuda/device/device.h"
#include "cuda/emulated/execution.h"
#include "cuda/emulated/runtime.h"
#include "cuda/ops/cuda_ops.h"
#include "numbers.h"
#include "ops/reference/reference_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <vector>

namespace echelon::cuda {
namespace {

struct AttentionCase {
  std::int64_t B, Tq, Tk, H, K, C, group, first_head;
  bool has_documents = false;
  bool has_ends = false;
};

/// q, k, v, out, lse, dout, dq, dk, dv, delta of bfloat16 and the begins and ends of ranges, at addresses that the
/// emulated device has.
struct AttentionTensors {
  std::vector<Numbers> of;
  AttentionCase a;

  explicit AttentionTensors(const AttentionCase& sizes) : a(sizes) {
    const Sizes queries = {a.B, a.Tq, a.H, a.C}, keys = {a.B, a.Tk, a.K, a.C}, rows = {a.B, a.H, a.Tq};
    const auto random = [](const Sizes& s, unsigned seed) { return Numbers::random(DType::bfloat16, s, seed); };
    of = {random(queries, 1), random(keys, 2),    random(keys, 3), random(queries, 4), Numbers(DType::float32, rows),
          random(queries, 5), random(queries, 6), random(keys, 7), random(keys, 8),    Numbers(DType::float32, rows)};
    // Documents of 1, 2, 3, ... tokens, the n-th from n (n - 1) / 2 on.
    std::vector<std::int32_t> starts;
    for (std::int64_t b = 0; b < a.B; ++b)
      for (std::int64_t position = a.Tk - a.Tq + b; std::ssize(starts) < (b + 1) * a.Tq; ++position) {
        std::int32_t n = 1;
        while (n * (n + 1) / 2 <= position) ++n;
        starts.push_back(n * (n - 1) / 2);
      }
    // Queries at every third position: the first ones see nothing, the last ones all keys.
    std::vector<std::int32_t> ends;
    for (std::size_t n = 0; n < starts.size(); ++n) {
      const std::int64_t end = 3 * (static_cast<std::int64_t>(n) % a.Tq - a.Tq / 4);
      ends.push_back(static_cast<std::int32_t>(std::clamp<std::int64_t>(end, 0, a.Tk)));
      if (a.has_ends) starts[n] = std::min(starts[n], ends.back());
    }
    of.push_back(Numbers::tokens(starts));
    of.push_back(Numbers::tokens(ends));
  }
  [[nodiscard]] AttentionMask mask() const {
    AttentionMask mask = {.begin = a.has_documents ? of[10].tensor() : Tensor(),
                          .end = a.has_ends ? of[11].tensor() : Tensor()};
    if (a.has_ends) mask.num_pairs = count_seen_pairs(mask, of[0], of[1]);
    return mask;
  }
  [[nodiscard]] double scale() const { return 1 / std::sqrt(static_cast<double>(a.C)); }
  [[nodiscard]] AttentionArgs forward() const {
    return {.q = of[0],
            .k = of[1],
            .v = of[2],
            .out = of[3],
            .lse = of[4],
            .scale = scale(),
            .group = a.group,
            .first_head = a.first_head,
            .mask = mask()};
  }
  [[nodiscard]] AttentionBackwardArgs backward() const {
    return {.q = of[0],
            .k = of[1],
            .v = of[2],
            .out = of[3],
            .lse = of[4],
            .dout = of[5],
            .dq = of[6],
            .dk = of[7],
            .dv = of[8],
            .delta = of[9],
            .scale = scale(),
            .group = a.group,
            .first_head = a.first_head,
            .mask = mask()};
  }
};

void expect_same(const AttentionTensors& actual, const AttentionTensors& expected,
                 const std::vector<std::size_t>& which) {
  for (const std::size_t i : which)
    expect_near(actual.of[i], expected.of[i], tolerance_of(DType::bfloat16), "tensor " + std::to_string(i));
}

/// Pairs since the last call.
std::array<std::int64_t, 3> pairs_computed() {
  std::array<std::int64_t, 3> pairs;
  for (std::size_t i = 0; i < pairs.size(); ++i) pairs[i] = emulated::num_pairs[i].exchange(0);
  return pairs;
}

void expect_like_the_reference(const AttentionCase& a) {
  Device device(0);
  ReferenceOps reference;
  AttentionTensors expected(a), actual(a);
  reference.attention(expected.forward());
  const std::int64_t pairs = a.H * count_seen_pairs(actual.mask(), actual.of[0], actual.of[1]);
  (void)pairs_computed();
  ASSERT_TRUE(mma_attention(actual.forward(), device.most_shared_bytes(), device.compute().get()));
  device.compute().synchronize();
  expect_same(actual, expected, {3, 4});
  EXPECT_EQ(pairs_computed(), (std::array<std::int64_t, 3>{pairs, 0, 0}));
  if (a.C > 128) return;
  for (AttentionTensors* t : {&expected, &actual})
    for (std::int64_t i = 0; i < t->of[4].count(); ++i)
      if (std::isinf(t->of[4].get(i))) t->of[4].set(i, 0.5);  // rows that see other keys alone
  reference.attention_backward(expected.backward());
  ASSERT_TRUE(mma_attention_backward(actual.backward(), device.most_shared_bytes(), device.compute().get()));
  device.compute().synchronize();
  expect_same(actual, expected, {6, 7, 8, 9});
  EXPECT_EQ(pairs_computed(), (std::array<std::int64_t, 3>{0, pairs, pairs}));
}

// Several tiles of keys and blocks of queries for each width that kernels are compiled for, and widths that are padded
// to them; groups that begin in the middle; kv heads that nobody reads; fewer queries than keys, and more; documents;
// ranges.
TEST(AttentionInTensorCores, EqualsTheReference) {
  for (const AttentionCase& a : {AttentionCase{1, 140, 140, 2, 2, 64, 2, 1},
                                 {1, 130, 130, 1, 2, 128, 1, 0},
                                 {2, 40, 40, 2, 1, 40, 2, 0},
                                 {1, 30, 135, 1, 1, 104, 1, 0},
                                 {1, 90, 20, 1, 1, 72, 1, 0},
                                 {1, 20, 75, 1, 1, 256, 1, 0},
                                 {2, 150, 150, 2, 1, 64, 2, 0, true},
                                 {1, 150, 150, 1, 1, 128, 1, 0, true},
                                 {1, 20, 75, 1, 1, 256, 1, 0, true},
                                 {1, 70, 130, 1, 1, 64, 1, 0, true},
                                 {2, 140, 150, 2, 1, 64, 2, 0, false, true},
                                 {1, 150, 90, 2, 2, 128, 1, 0, true, true},
                                 {1, 30, 135, 1, 1, 104, 1, 0, true, true},
                                 {1, 20, 75, 1, 1, 256, 1, 0, false, true}}) {
    SCOPED_TRACE(a.C);
    expect_like_the_reference(a);
  }
}

// The bits are the same whatever the order of blocks and threads.
TEST(AttentionInTensorCores, DoesNotDependOnTheOrderOfBlocks) {
  Device device(0);
  std::vector<AttentionTensors> runs(2, AttentionTensors({1, 70, 70, 2, 1, 64, 2, 0}));
  for (std::size_t i = 0; i < runs.size(); ++i) {
    emulated::seed(static_cast<unsigned>(i + 1));
    ASSERT_TRUE(mma_attention(runs[i].forward(), device.most_shared_bytes(), device.compute().get()));
    ASSERT_TRUE(mma_attention_backward(runs[i].backward(), device.most_shared_bytes(), device.compute().get()));
    device.compute().synchronize();
  }
  for (std::size_t i = 0; i < runs[0].of.size(); ++i) EXPECT_EQ(runs[0].of[i], runs[1].of[i]) << i;
}

TEST(AttentionInTensorCores, RefusesWhatItIsNotFor) {
  Device device(0);
  const auto takes = [&](const AttentionArgs& args) {
    return mma_attention(args, device.most_shared_bytes(), device.compute().get());
  };
  EXPECT_FALSE(takes(AttentionTensors({1, 4, 4, 1, 1, 20, 1, 0}).forward()))
      << "rows that are not multiples of 16 bytes";
  EXPECT_FALSE(takes(AttentionTensors({1, 4, 4, 1, 1, 264, 1, 0}).forward())) << "too wide";
  const AttentionTensors tensors({1, 4, 4, 1, 1, 64, 1, 0});
  AttentionArgs args = tensors.forward();
  args.scale = -1;
  EXPECT_FALSE(takes(args)) << "the largest product has not the largest score";
  EXPECT_FALSE(mma_attention_backward(AttentionTensors({1, 4, 4, 1, 1, 136, 1, 0}).backward(),
                                      device.most_shared_bytes(), device.compute().get()))
      << "too wide for two sums";
}

/// Of compute capability 8.6, 8.9 and 12.x.
class WhereABlockMayHave99KiB : public ::testing::Test {
 protected:
  WhereABlockMayHave99KiB() { emulated::set_shared_bytes(99 * 1024); }
  ~WhereABlockMayHave99KiB() override { emulated::set_shared_bytes(227 * 1024); }
};

TEST_F(WhereABlockMayHave99KiB, HeadsOf128HaveTensorCores) {
  for (const AttentionCase& a : {AttentionCase{1, 150, 150, 1, 1, 128, 1, 0, true},
                                 {1, 100, 150, 1, 1, 128, 1, 0, true, true},
                                 {1, 90, 20, 1, 1, 72, 1, 0},
                                 {1, 130, 130, 2, 1, 104, 2, 0}}) {
    SCOPED_TRACE(a.C);
    expect_like_the_reference(a);
  }
}

TEST_F(WhereABlockMayHave99KiB, WiderHeadsHaveTheGeneralKernels) {
  Device device(0);
  const AttentionCase a = {1, 20, 75, 1, 1, 136, 1, 0};
  AttentionTensors expected(a), actual(a);
  EXPECT_FALSE(mma_attention(actual.forward(), device.most_shared_bytes(), device.compute().get()));
  CudaOps ops(device, {});
  EXPECT_THAT(ops.attention_kernels(), ::testing::HasSubstr("bfloat16 heads up to 128, their gradients up to 128"));
  EXPECT_EQ(ops.attention_choices(), "");
  ReferenceOps().attention(expected.forward());
  ops.attention(actual.forward());
  ops.finish();
  expect_same(actual, expected, {3, 4});
  EXPECT_EQ(ops.attention_choices(),
            "attention of 1 x 20 queries and 75 keys, 1 head of 136 and 1 kv head in bfloat16: our general kernels");
}

TEST(AttentionInTensorCores, SaysWhatItIsFor) {
  Device device(0);
  CudaOps ops(device, {});
  EXPECT_THAT(ops.attention_kernels(), ::testing::HasSubstr("bfloat16 heads up to 256, their gradients up to 128"));
  const AttentionTensors tensors({1, 20, 20, 1, 1, 64, 1, 0});
  ops.attention(tensors.forward());
  ops.attention_backward(tensors.backward());
  ops.finish();
  EXPECT_EQ(ops.attention_choices(),
            "attention of 1 x 20 queries and 20 keys, 1 head of 64 and 1 kv head in bfloat16: our kernels for tensor "
            "cores\n"
            "attention's gradients of 1 x 20 queries and 20 keys, 1 head of 64 and 1 kv head in bfloat16: our "
            "kernels for tensor cores");
}

}  // namespace
}  // namespace echelon::cuda
