// The CPU backend: conformance with vectors of every width, the same bits with any number of threads, and what it
// counts.
#include "ops/cpu/cpu_ops.h"

#include "base/error.h"
#include "conformance.h"
#include "ops/cpu/gemm_choice.h"
#include "ops/cpu/instruction_set.h"
#include "ops/trace/trace_ops.h"

#include "hwy/targets.h"

#include <cmath>
#include <optional>
#include <thread>

namespace echelon {
namespace {

void choose(std::int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

/// With one thread; two must give the same bits.
class CpuUnderTest final : public OpsUnderTest {
 public:
  explicit CpuUnderTest(std::int64_t target, std::optional<ProductChoice> products = {}) : products_(products) {
    choose(target);
  }
  ~CpuUnderTest() override { choose(0); }
  CpuUnderTest(const CpuUnderTest&) = delete;
  CpuUnderTest& operator=(const CpuUnderTest&) = delete;
  [[nodiscard]] Tensors run(const std::string& what, const Tensors& tensors,
                            const OperationOnTensors& operation) override {
    CpuOps cpu({.num_threads = 1, .products = products_}), cpu_of_two({.num_threads = 2, .products = products_});
    Tensors of_one = tensors, of_two = tensors;
    operation(cpu, of_one);
    operation(cpu_of_two, of_two);
    for (std::size_t i = 0; i < tensors.size(); ++i)
      EXPECT_TRUE(of_two[i] == of_one[i]) << what << ", tensor " << i << " depends on the number of threads";
    return of_one;
  }

 private:
  std::optional<ProductChoice> products_;
};

/// bfloat16 by certain kernels.
OpsVariant variant(ProductKernels kernels) {
  return {.dtype = DType::bfloat16, .make = [kernels]() -> std::unique_ptr<OpsUnderTest> {
            if (obstacle_of_bfloat16(kernels)) return nullptr;
            ProductChoice products = default_products();
            products.bfloat16 = kernels;
            return std::make_unique<CpuUnderTest>(0, products);
          }};
}
/// `target`: the instruction set to compute with; 0: the best that this processor has.
OpsVariant variant(DType dtype, std::int64_t target) {
  return {.dtype = dtype, .make = [target]() -> std::unique_ptr<OpsUnderTest> {
            if ((highway_targets() & target) != target) return nullptr;
            return std::make_unique<CpuUnderTest>(target);
          }};
}
auto variants(std::int64_t target) {
  return testing::Values(variant(DType::float32, target), variant(DType::float64, target),
                         variant(DType::bfloat16, target));
}
INSTANTIATE_TEST_SUITE_P(Best, OpsConformance, variants(0), name_of_variant);
INSTANTIATE_TEST_SUITE_P(BestFloat16, OpsConformance, testing::Values(variant(DType::float16, 0)), name_of_variant);
INSTANTIATE_TEST_SUITE_P(Widened, OpsConformance, testing::Values(variant(ProductKernels::widened)), name_of_variant);
INSTANTIATE_TEST_SUITE_P(Native, OpsConformance, testing::Values(variant(ProductKernels::native)), name_of_variant);
INSTANTIATE_TEST_SUITE_P(Amx, OpsConformance, testing::Values(variant(ProductKernels::amx)), name_of_variant);
INSTANTIATE_TEST_SUITE_P(Avx2, OpsConformance, variants(HWY_AVX2), name_of_variant);
INSTANTIATE_TEST_SUITE_P(Scalar, OpsConformance, variants(HWY_EMU128), name_of_variant);

struct LargeAttention {
  std::int64_t B, Tq, Tk, H, K, C, group, first_head;
};

class CpuThreads : public testing::TestWithParam<DType> {
 protected:
  const DType dtype = GetParam();
  [[nodiscard]] Numbers random(Sizes sizes, unsigned seed) const { return Numbers::random(dtype, sizes, seed); }
};
std::string name_of_case(const testing::TestParamInfo<DType>& tested) { return std::string(name_of(tested.param)); }
INSTANTIATE_TEST_SUITE_P(Best, CpuThreads, testing::Values(DType::float32, DType::float64, DType::bfloat16),
                         name_of_case);

TEST_P(CpuThreads, LargeMatmulsHaveTheSameBitsOnAnyNumberOfThreads) {
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{385, 500, 201},
                                {401, 389, 301},
                                {50, 7001, 130},
                                {7001, 51, 150},
                                {1024, 208, 768}})
    for (int bits = 0; bits < 8; ++bits) {
      const bool ta = (bits & 1) != 0, tb = (bits & 2) != 0, accumulates = (bits & 4) != 0;
      const Numbers a = random(ta ? Sizes{k, m} : Sizes{m, k}, 1), b = random(tb ? Sizes{n, k} : Sizes{k, n}, 2),
                    c = random({m, n}, 3);
      std::vector<Numbers> results;
      for (const int num_threads : {1, 2, 3}) {
        CpuOps ops({.num_threads = num_threads});
        Numbers result = c;
        ops.matmul({.a = a, .b = b, .c = result, .transpose_a = ta, .transpose_b = tb, .accumulates = accumulates});
        results.push_back(result);
      }
      EXPECT_TRUE(results[0] == results[1] && results[0] == results[2])
          << m << " " << n << " " << k << " " << ta << tb << accumulates;
    }
}

/// The gradients of q, k and v behind one another.
Tensors differentiated_attention(Ops& ops, const AttentionArgs& forward, const Numbers& dout) {
  ops.attention(forward);
  const Numbers dq(forward.q.dtype, forward.q.sizes), dk(forward.k.dtype, forward.k.sizes),
      dv = dk, delta(forward.lse.dtype, forward.lse.sizes);
  ops.attention_backward({.q = forward.q,
                          .k = forward.k,
                          .v = forward.v,
                          .out = forward.out,
                          .lse = forward.lse,
                          .dout = dout,
                          .dq = dq,
                          .dk = dk,
                          .dv = dv,
                          .delta = delta,
                          .scale = forward.scale,
                          .group = forward.group,
                          .first_head = forward.first_head});
  return {dq, dk, dv};
}

TEST_P(CpuThreads, AttentionHasTheSameBitsOnAnyNumberOfThreads) {
  for (const auto& a :
       {LargeAttention{1, 700, 700, 1, 1, 24, 1, 0}, {1, 320, 320, 6, 3, 16, 2, 0}, {3, 130, 130, 5, 2, 16, 3, 1}}) {
    const Sizes queries = {a.B, a.Tq, a.H, a.C}, keys = {a.B, a.Tk, a.K, a.C};
    const Numbers q = random(queries, 1), k = random(keys, 2), v = random(keys, 3), dout = random(queries, 4);
    std::vector<Tensors> results;
    for (const int num_threads : {1, 2, 3, 5}) {
      CpuOps ops({.num_threads = num_threads});
      const Numbers out(dtype, queries), lse(accumulate_dtype(dtype), {a.B, a.H, a.Tq});
      Tensors result = differentiated_attention(
          ops, {.q = q, .k = k, .v = v, .out = out, .lse = lse, .group = a.group, .first_head = a.first_head}, dout);
      result.insert(result.end(), {out, lse});
      results.push_back(result);
    }
    for (const Tensors& result : results) EXPECT_TRUE(result == results[0]) << "T " << a.Tq << ", H " << a.H;
  }
}

/// The last row of attention of one sequence of two tokens to values of 0 and 1, with a score of zero and one of
/// -score.
double second_value(ProductKernels kernels, double score) {
  ProductChoice products = default_products();
  products.bfloat16 = kernels;
  CpuOps ops({.products = products});
  Numbers q(DType::bfloat16, {1, 2, 1, 1}), k = q, v = q;
  for (std::int64_t i = 0; i < 2; ++i) q.set(i, 1.0);
  k.set(0, -score);
  v.set(0, 1.0);
  const Numbers out = q, lse(DType::float32, {1, 1, 2});
  ops.attention({.q = q, .k = k, .v = v, .out = out, .lse = lse});
  return out.get(1);
}

// p relative to the largest one is a factor of a product: rounded to bfloat16, but for kernels that widen, and but for
// its part of the sum.
TEST(CpuOps, ProductsOfBfloat16RoundProbabilities) {
  int num_different = 0;
  for (int n = 1; n < 32; ++n) {
    const double score = n / 8.0, p = std::exp(-score);
    const auto rounded = [](double x) {
      return static_cast<double>(static_cast<float>(bfloat16(static_cast<float>(x))));
    };
    const double as_is = rounded(p / (1 + p)), of_rounded = rounded(rounded(p) / (1 + p));
    if (as_is == of_rounded) continue;
    ++num_different;
    EXPECT_EQ(second_value(ProductKernels::widened, score), as_is) << score;
    for (const ProductKernels kernels : {ProductKernels::native, ProductKernels::amx}) {
      if (obstacle_of_bfloat16(kernels)) continue;
      EXPECT_EQ(second_value(kernels, score), of_rounded) << score;
    }
  }
  EXPECT_GT(num_different, 5);
}

TEST(CpuOps, CountsProductsAsTheTraceDoes) {
  CpuOps cpu({});
  TraceOps trace;
  const Numbers x = Numbers::random(DType::float32, {6, 4}, 1), w = Numbers::random(DType::float32, {5, 4}, 2),
                y(DType::float32, {6, 5}), dw(DType::float32, {5, 4});
  for (Ops* ops : {static_cast<Ops*>(&cpu), static_cast<Ops*>(&trace)}) {
    ops->matmul({.a = x, .b = w, .c = y, .transpose_b = true});
    ops->matmul({.a = x, .b = w, .c = y, .transpose_b = true});
    ops->matmul({.a = y, .b = x, .c = dw, .transpose_a = true, .accumulates = true});
  }
  std::map<std::array<std::int64_t, 3>, std::int64_t> traced;
  for (const OpRecord& record : trace.records()) ++traced[{record.m, record.n, record.k}];
  EXPECT_EQ(cpu.matmul_counts(), traced);
}

// The pair (1, 0) becomes cosine and sine. Angles up to 2^31, where a product that is rounded would lose all digits.
TEST(CpuOps, AnglesOfGivenPositionsAreExact) {
  constexpr std::int64_t C = 34;
  std::vector<std::int32_t> positions = {0, 1, 2, 3, 1000, 131071, (1 << 24) - 1, 1 << 24, 2147483647};
  for (int i = 0; i < 500; ++i) positions.push_back(static_cast<std::int32_t>(i * 4294967LL % 2147483647));
  const auto T = static_cast<std::int64_t>(positions.size());
  Numbers x(DType::float64, {1, T, 1, C}), frequencies(DType::float64, {C / 2});
  for (std::int64_t i = 0; i < C / 2; ++i) frequencies.set(i, std::pow(10000.0, -static_cast<double>(i) / (C / 2)));
  for (std::int64_t t = 0; t < T; ++t)
    for (std::int64_t i = 0; i < C / 2; ++i) x.set(t * C + i, 1);
  CpuOps ops({});
  ops.rope({.x = x, .y = x, .cos = {}, .sin = {}, .positions = Numbers::tokens(positions), .frequencies = frequencies});
  double worst = 0;
  for (std::int64_t t = 0; t < T; ++t)
    for (std::int64_t i = 0; i < C / 2; ++i) {
      const long double angle = static_cast<double>(positions[static_cast<std::size_t>(t)]) * frequencies.get(i);
      worst = std::max(worst, static_cast<double>(std::abs(std::cos(angle) - x.get(t * C + i))));
      worst = std::max(worst, static_cast<double>(std::abs(std::sin(angle) - x.get(t * C + C / 2 + i))));
    }
  EXPECT_LE(worst, 0x1p-52);
}

TEST(CpuOps, MisfitsAreFailures) {
  CpuOps ops({});
  const Numbers x = Numbers::random(DType::float32, {3}, 1), y = Numbers::random(DType::float32, {4}, 2);
  EXPECT_THROW(ops.add(x, x, y), Failure);
}

TEST(CpuOps, ManyRanksAtOnceEachGetWhatOneAloneGets) {
  const Numbers a = Numbers::random(DType::float32, {150, 170}, 1), b = Numbers::random(DType::float32, {170, 130}, 2);
  const Numbers q = Numbers::random(DType::float32, {1, 100, 2, 16}, 3);
  const auto compute = [&](Numbers& c, Numbers& out) {
    CpuOps ops({});
    Numbers lse(DType::float32, {1, 2, 100});
    for (int repeat = 0; repeat < 20; ++repeat) {
      ops.matmul({.a = a, .b = b, .c = c});
      ops.attention({.q = q, .k = q, .v = q, .out = out, .lse = lse});
    }
  };
  Numbers c(DType::float32, {150, 130}), out(DType::float32, {1, 100, 2, 16});
  std::vector<Numbers> cs(8, c), outs(8, out);
  compute(c, out);
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < cs.size(); ++rank) ranks.emplace_back([&, rank] { compute(cs[rank], outs[rank]); });
  for (auto& rank : ranks) rank.join();
  for (std::size_t rank = 0; rank < cs.size(); ++rank) {
    EXPECT_TRUE(cs[rank] == c) << rank;
    EXPECT_TRUE(outs[rank] == out) << rank;
  }
}

}  // namespace
}  // namespace echelon
