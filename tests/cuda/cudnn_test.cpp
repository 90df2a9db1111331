// Attention by cuDNN, whose graphs the emulation computes by naive loops: which shapes it gets, in which parts, in
// which memory, and what is said about those that it refuses.
#include "base/error.h"
#include "cuda/device/device.h"
#include "cuda/ops/cuda_ops.h"
#include "numbers.h"
#include "ops/reference/reference_ops.h"

#include <cudnn_frontend.h>
#include <gmock/gmock.h>

#include <cmath>

namespace echelon::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct Case {
  std::int64_t B, Tq, Tk, H, K, C, group = 1, first_head = 0;
  MaskShape shape = {};
};

/// The ranges that have a shape.
std::vector<std::int32_t> ends_of(const Case& a) {
  std::vector<std::int32_t> ends;
  for (std::int64_t n = 0; n < a.B * a.Tq; ++n) {
    const std::int64_t i = n % a.Tq;
    const std::int64_t end =
        a.shape.kind == MaskShape::Kind::causal ? a.shape.end_key - (a.Tq - 1 - i) : a.shape.end_key;
    ends.push_back(i < a.shape.first_query ? 0 : static_cast<std::int32_t>(end));
  }
  return ends;
}

struct Operands {
  Case a;
  Numbers q, k, v, out, lse, dout, dq, dk, dv, delta, scratch, begins, ends;

  explicit Operands(const Case& sizes, DType dtype = DType::bfloat16)
      : a(sizes),
        q(Numbers::random(dtype, {a.B, a.Tq, a.H, a.C}, 1)),
        k(Numbers::random(dtype, {a.B, a.Tk, a.K, a.C}, 2)),
        v(Numbers::random(dtype, {a.B, a.Tk, a.K, a.C}, 3)),
        out(dtype, {a.B, a.Tq, a.H, a.C}),
        lse(DType::float32, {a.B, a.H, a.Tq}),
        dout(Numbers::random(dtype, {a.B, a.Tq, a.H, a.C}, 4)),
        dq(dtype, {a.B, a.Tq, a.H, a.C}),
        dk(dtype, {a.B, a.Tk, a.K, a.C}),
        dv(dtype, {a.B, a.Tk, a.K, a.C}),
        delta(DType::float32, {a.B, a.H, a.Tq}),
        scratch(DType::int32, {attention_scratch_size(q.tensor(), k.tensor())}),
        begins(Numbers::tokens(std::vector<std::int32_t>(static_cast<std::size_t>(a.B * a.Tq)))),
        ends(Numbers::tokens(ends_of(a))) {}

  [[nodiscard]] double scale() const { return 1 / std::sqrt(static_cast<double>(a.C)); }
  [[nodiscard]] AttentionMask mask() const {
    if (a.shape.kind == MaskShape::Kind::ranges) return {};
    const Sizes queries = {a.B, a.Tq};
    return {.begin = begins.tensor().reshaped(queries), .end = ends.tensor().reshaped(queries), .shape = a.shape};
  }
  [[nodiscard]] AttentionArgs forward() {
    return {.q = q,
            .k = k,
            .v = v,
            .out = out,
            .lse = lse,
            .scale = scale(),
            .group = a.group,
            .first_head = a.first_head,
            .mask = mask()};
  }
  [[nodiscard]] AttentionBackwardArgs backward(bool has_scratch) {
    return {.q = q,
            .k = k,
            .v = v,
            .out = out,
            .lse = lse,
            .dout = dout,
            .dq = dq,
            .dk = dk,
            .dv = dv,
            .delta = delta,
            .scale = scale(),
            .group = a.group,
            .first_head = a.first_head,
            .mask = mask(),
            .scratch = has_scratch ? scratch.tensor() : Tensor()};
  }
};

class Cudnn : public ::testing::Test {
 protected:
  Cudnn() { emulated::set_cudnn_version(91900); }
  ~Cudnn() override {
    emulated::set_cudnn_version(0);
    emulated::set_cudnn_error("");
  }
  /// Both passes, compared with the reference; what was chosen.
  std::string choices_for(const Case& a, const OpsOptions& options, bool has_scratch = true) {
    Device device(0);
    CudaOps ops(device, options);
    ReferenceOps reference;
    Operands actual(a), expected(a);
    reference.attention(expected.forward());
    ops.attention(actual.forward());
    ops.finish();
    expect_near(actual.out, expected.out, tolerance_of(DType::bfloat16), "out");
    expect_near(actual.lse, expected.lse, tolerance_of(DType::bfloat16), "lse");
    if (a.Tq == a.Tk || a.shape.kind != MaskShape::Kind::ranges) {
      reference.attention_backward(expected.backward(false));
      ops.attention_backward(actual.backward(has_scratch));
      ops.finish();
      expect_near(actual.dq, expected.dq, tolerance_of(DType::bfloat16), "dq");
      expect_near(actual.dk, expected.dk, tolerance_of(DType::bfloat16), "dk");
      expect_near(actual.dv, expected.dv, tolerance_of(DType::bfloat16), "dv");
    }
    return ops.attention_choices();
  }
  Device device_{0};
};

constexpr OpsOptions any_order = {.deterministic = false};

TEST_F(Cudnn, ComputesHeadsThatShareKeysAndSlicesOfHeads) {
  for (const Case& a : {Case{2, 20, 20, 4, 2, 16, 2, 0}, {2, 12, 30, 2, 2, 8, 1, 0}, {2, 20, 20, 2, 1, 16, 2, 0}}) {
    const std::string choices = choices_for(a, any_order);
    EXPECT_THAT(choices, HasSubstr("bfloat16: cuDNN 9.19.0"));
    EXPECT_THAT(choices, ::testing::Not(HasSubstr("our")));
  }
  // Query heads 2 and 3 of four, in pairs: they read the second kv head.
  CudaOps ops(device_, any_order);
  ReferenceOps reference;
  Operands actual({2, 20, 20, 2, 2, 16, 2, 2}), expected({2, 20, 20, 2, 2, 16, 2, 2});
  reference.attention(expected.forward());
  ops.attention(actual.forward());
  ops.finish();
  expect_near(actual.out, expected.out, tolerance_of(DType::bfloat16), "out");
  EXPECT_THAT(ops.attention_choices(), HasSubstr("bfloat16: cuDNN 9.19.0"));
}

// Blocks of a ring whose ranges the host knows: queries and keys around them are filled by a kernel of ours.
TEST_F(Cudnn, ComputesRangesThatAreWholeBlocksOrCausal) {
  using enum MaskShape::Kind;
  emulated::set_cudnn_version(92600);
  for (const auto& [shape, words] : {std::pair(MaskShape{causal, 0, 20}, "bfloat16: cuDNN"),
                                     {{whole, 0, 20}, "20 queries see 20 keys: cuDNN"},
                                     {{whole, 0, 10}, "20 queries see 10 keys: cuDNN"},
                                     {{whole, 10, 20}, "10 queries see 20 keys: cuDNN"},
                                     {{whole, 15, 7}, "5 queries see 7 keys: cuDNN"},
                                     {{causal, 8, 12}, "12 queries see 12 keys causally: cuDNN"}}) {
    const std::int64_t before = emulated::num_cudnn_runs();
    const std::string choices = choices_for({2, 20, 20, 4, 2, 16, 2, 0, shape}, any_order);
    EXPECT_THAT(choices, AllOf(HasSubstr(words), ::testing::Not(HasSubstr("our")))) << choices;
    EXPECT_EQ(emulated::num_cudnn_runs() - before, 2);
  }
}

// Row sums with gaps are read from 9.26 on.
TEST_F(Cudnn, LeavesTheLastQueriesToOurKernelsWhereItCannotReadTheirSums) {
  const std::string choices = choices_for({1, 20, 20, 2, 2, 16, 1, 0, {MaskShape::Kind::whole, 10, 20}}, any_order);
  EXPECT_THAT(choices, HasSubstr("bfloat16, 10 queries see 20 keys: cuDNN 9.19.0"));
  EXPECT_THAT(choices, HasSubstr("see 20 keys: our kernels for tensor cores, because cuDNN: the stats are not packed"));
}

// 880 bytes for each pair of 100 queries and keys of two heads are 16.8 MiB, as 2 bytes are of 2,100: the workspace of
// 32 MiB has that for one sequence.
const Case large = {2, 100, 100, 2, 2, 2};

class CudnnInLittleMemory : public Cudnn {
 protected:
  CudnnInLittleMemory() {
    emulated::set_bytes_per_pair(880);
    emulated::set_num_multiprocessors(1);
  }
  ~CudnnInLittleMemory() override {
    emulated::set_bytes_per_pair(2);
    emulated::set_num_multiprocessors(4);
  }
};

TEST_F(CudnnInLittleMemory, TakesAsManySequencesAsItsMemoryAllows) {
  EXPECT_THAT(choices_for(large, {}), HasSubstr("attention's gradients of 2 x 100 queries and 100 keys, 2 heads of 2 "
                                                "and 2 kv heads in bfloat16: cuDNN 9.19.0, 1 of 2 sequences at once"));
}

// Two blocks of at most 128 queries, where 132 multiprocessors have room for 264.
TEST_F(CudnnInLittleMemory, LeavesSequencesThatWouldIdleTheGpuToOurKernels) {
  emulated::set_num_multiprocessors(132);
  const std::string choices = choices_for(large, {});
  EXPECT_THAT(choices,
              HasSubstr("our general kernels, because cuDNN: no engine with so little workspace (of plans with "
                        "at most "));
  EXPECT_THAT(choices, HasSubstr("; 1 of 2 sequences at once would leave the GPU idle"));
}

// From 9.25 on deterministic gradients need memory that is linear in the sequence, which the plan has as scratch.
TEST_F(CudnnInLittleMemory, ComputesDeterministicGradientsInScratchFrom925On) {
  emulated::set_cudnn_version(92500);
  const std::string choices = choices_for(large, {});
  EXPECT_THAT(choices, HasSubstr("gradients of 2 x 100 queries and 100 keys, 2 heads of 2 and 2 kv heads in bfloat16: "
                                 "cuDNN 9.25.0"));
  EXPECT_THAT(choices, ::testing::Not(HasSubstr("at once")));
}

TEST_F(Cudnn, IsQuotedWhereItRefuses) {
  emulated::set_cudnn_error("Unable to load any libcudart library");
  const Case a = {1, 20, 20, 1, 1, 8, 1, 0};
  const std::string choices = choices_for(a, any_order);
  EXPECT_THAT(choices, AllOf(HasSubstr("bfloat16: our kernels for tensor cores, because cuDNN: Unable to load any "
                                       "libcudart library\nattention's gradients"),
                             HasSubstr("our kernels for tensor cores, because cuDNN: Unable")));
  CudaOps ops(device_, {.cudnn = CudnnUse::always});
  Operands operands(a);
  EXPECT_THAT([&] { ops.attention(operands.forward()); },
              ThrowsMessage<Error>("training.attention = cudnn, but cuDNN does not compute 1 x 20 queries and 20 keys: "
                                   "Unable to load any libcudart library (use auto)"));
}

TEST_F(Cudnn, IsAskedForByTheConfig) {
  EXPECT_EQ(choices_for({1, 20, 20, 1, 1, 8, 1, 0}, {.cudnn = CudnnUse::never}).find("cuDNN"), std::string::npos);
  EXPECT_THAT(CudaOps(device_, {.cudnn = CudnnUse::never}).attention_kernels(),
              HasSubstr("(training.attention = own)"));
  emulated::set_cudnn_version(0);
  EXPECT_THAT(
      [&] { CudaOps(device_, {.cudnn = CudnnUse::always}); },
      ThrowsMessage<Error>("training.attention = cudnn, but libcudnn.so.9 is not found (LD_LIBRARY_PATH) (use auto)"));
}

}  // namespace
}  // namespace echelon::cuda
