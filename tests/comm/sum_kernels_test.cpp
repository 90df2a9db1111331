// The inner loops of the transports on every instruction set that this processor has: lengths and alignments around
// vectors and lines, outputs that are inputs, streaming stores, and every 16-bit number.
#include "comm/numbers.h"
#include "comm/sum.h"
#include "comm/traffic.h"

#include "hwy/targets.h"

#include <algorithm>
#include <cmath>

namespace echelon {
namespace {

using conformance::all_dtypes;
using conformance::Buffer;
using conformance::numbers;
using conformance::reduced;

class SumKernels : public ::testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    if ((hwy::SupportedTargets() & GetParam()) == 0)
      GTEST_SKIP() << "this processor has no " << hwy::TargetName(GetParam());
    use(GetParam());
  }
  void TearDown() override { use(0); }

 private:
  static void use(std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

// Numbers from any element of a line on, between others that have to stay.
class Placed {
 public:
  Placed(const Buffer& x, std::int64_t first)
      : size_(size_of(x.dtype())), first_(first), bytes_(static_cast<std::size_t>((x.num_elements() + 200) * size_)) {
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<std::byte>(i);
    before_ = bytes_;
    Buffer copy = x;
    std::copy_n(copy.tensor().data, x.num_elements() * size_, data());
  }
  [[nodiscard]] std::byte* data() {
    const std::int64_t to_line = static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(bytes_.data()) % 64);
    return bytes_.data() + to_line + first_ * size_;
  }
  void expect(const Buffer& x, const std::string& what) {
    Buffer found = x;
    const std::int64_t num_bytes = x.num_elements() * size_, begin = data() - bytes_.data();
    std::copy_n(data(), num_bytes, found.tensor().data);
    conformance::expect_same(found, x, what);
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(bytes_.size()); ++i)
      if (i < begin || i >= begin + num_bytes) {
        ASSERT_EQ(bytes_[static_cast<std::size_t>(i)], before_[static_cast<std::size_t>(i)])
            << what << ": beside the numbers";
      }
  }

 private:
  std::int64_t size_, first_;
  std::vector<std::byte> bytes_, before_;
};

struct Case {
  DType dtype;
  ReduceOp op;
  Stores stores;
  int n;
  std::int64_t count, first;
  [[nodiscard]] std::string name() const {
    return fmt::format("{} of {} x {} {} from {}, {}", name_of(op), n, count, name_of(dtype), first,
                       stores == Stores::cached ? "cached" : "streaming");
  }
};

void expect_in_place_and_elsewhere(const Case& c) {
  const Buffer expected = reduced(c.dtype, c.count, c.n, c.op, 7);
  std::vector<Placed> ranks;
  for (int rank = 0; rank < c.n; ++rank) ranks.emplace_back(numbers(c.dtype, c.count, rank, 7), c.first);
  Placed alike(Buffer(c.dtype, c.count), c.first), unlike(Buffer(c.dtype, c.count), c.first + 1);
  std::vector<const std::byte*> in;
  std::vector<std::byte*> in_place;
  for (Placed& rank : ranks) {
    in.push_back(rank.data());
    in_place.push_back(rank.data());
  }
  const ByteRange range = {0, 0, c.count * size_of(c.dtype)};
  const std::vector<std::byte*> one = {alike.data()}, two = {alike.data(), unlike.data()};
  reduce_in_rank_order({c.dtype, c.op, c.stores}, in, one, range);
  alike.expect(expected, c.name() + " into one");
  reduce_in_rank_order({c.dtype, c.op, c.stores}, in, two, range);
  alike.expect(expected, c.name() + " into the first of two");
  unlike.expect(expected, c.name() + " into the second of two");
  reduce_in_rank_order({c.dtype, c.op, c.stores}, in, in_place, range);
  for (Placed& rank : ranks) rank.expect(expected, c.name() + " in place");
}

TEST_P(SumKernels, AddInRankOrderAtAnyLengthAndAlignment) {
  for (const DType dtype : all_dtypes)
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max})
      for (const Stores stores : {Stores::cached, Stores::streaming})
        for (const int n : {1, 2, 3, 9})
          for (const std::int64_t count : {0, 1, 15, 31, 33, 64, 127, 128, 130, 1000})
            for (const std::int64_t first : {0, 1, 7})
              expect_in_place_and_elsewhere({dtype, op, stores, n, count, first});
}

TEST_P(SumKernels, CopyToAllAtAnyLengthAndAlignment) {
  for (const Stores stores : {Stores::cached, Stores::streaming})
    for (const std::int64_t count : {0, 1, 17, 32, 33, 300, 9001})  // the last is more than one block
      for (const std::int64_t first : {0, 1, 13}) {
        const Buffer x = numbers(DType::bfloat16, count, 0, 8);
        Placed source(x, 3), alike(Buffer(DType::bfloat16, count), first),
            other(Buffer(DType::bfloat16, count), first + 5);
        const std::vector<std::byte*> out = {alike.data(), source.data(), other.data()};
        copy_to_all(out, source.data(), {0, 0, count * 2}, stores);
        for (Placed* const p : {&source, &alike, &other}) p->expect(x, fmt::format("{} numbers from {}", count, first));
      }
}

TEST_P(SumKernels, RangesMayDifferInInputAndOutput) {
  const Buffer a = numbers(DType::float32, 500, 0, 7), b = numbers(DType::float32, 500, 1, 7);
  Buffer x = a, y = b, sum(DType::float32, 300);
  const std::vector<const std::byte*> in = {x.tensor().data, y.tensor().data};
  const std::vector<std::byte*> out = {sum.tensor().data};
  reduce_in_rank_order({DType::float32, ReduceOp::sum}, in, out, {200 * 4, 10 * 4, 290 * 4});
  for (std::int64_t i = 0; i < 300; ++i)
    ASSERT_EQ(sum.get(i), i < 10 ? 0 : static_cast<float>(a.get(190 + i) + b.get(190 + i))) << i;
}

template <class T>
T from_bits(std::uint32_t bits) {
  T x;
  x.bits = static_cast<std::uint16_t>(bits);
  return x;
}

// Against the scalar conversions, which have a test of their own. All numbers, each with another one chosen so that
// sums meet ties, overflow and subnormals.
template <class T>
void expect_all_numbers(DType dtype, ReduceOp op) {
  std::vector<T> x(65536), y(x.size()), z(x.size());
  const std::vector<const std::byte*> in = {reinterpret_cast<const std::byte*>(x.data()),
                                            reinterpret_cast<const std::byte*>(y.data())};
  const std::vector<std::byte*> out = {reinterpret_cast<std::byte*>(z.data())};
  for (const std::uint32_t factor : {1U, 0x8001U, 12345U, 40503U}) {
    for (std::uint32_t i = 0; i < x.size(); ++i) {
      x[i] = from_bits<T>(i);
      y[i] = from_bits<T>(i * factor + factor / 3);
    }
    reduce_in_rank_order({dtype, op}, in, out, {0, 0, 2 * 65536});
    for (std::uint32_t i = 0; i < x.size(); ++i) {
      const auto a = static_cast<float>(x[i]), b = static_cast<float>(y[i]), larger = std::isnan(a) || a >= b ? a : b;
      const T expected(op == ReduceOp::sum ? a + b : larger);
      if (std::isnan(static_cast<float>(expected))) {
        ASSERT_TRUE(std::isnan(static_cast<float>(z[i]))) << a << " and " << b;
      } else {
        ASSERT_EQ(z[i].bits, expected.bits) << a << " and " << b;
      }
    }
  }
}

TEST_P(SumKernels, RoundEvery16BitNumberLikeTheScalarConversions) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
    expect_all_numbers<bfloat16>(DType::bfloat16, op);
    expect_all_numbers<float16>(DType::float16, op);
  }
}

std::vector<std::int64_t> targets_of_architecture() {
  if (HWY_ARCH_ARM) return {HWY_NEON};
  return {HWY_AVX3_DL, HWY_AVX3, HWY_AVX2, HWY_SCALAR};
}
INSTANTIATE_TEST_SUITE_P(OnEveryInstructionSet, SumKernels, ::testing::ValuesIn(targets_of_architecture()),
                         [](const auto& target) { return std::string(hwy::TargetName(target.param)); });

}  // namespace
}  // namespace echelon
