// Matmuls in float8 that share rounded operands, and those that wait for each other, against the same matmuls each by
// itself, to the bit. The rules of what waits together: ops/gpu/product_calls.h.
#include "cuda/emulated/runtime.h"
#include "cuda/ops/cuda_ops.h"
#include "numbers.h"
#include "ops/forwarding_ops.h"
#include "ops/gpu/gpu_kernels.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <random>
#include <vector>

namespace echelon {
namespace {

constexpr std::int64_t matrix_side = 16;
constexpr Float8Order float8_orders[] = {Float8Order::as_is, Float8Order::transposed, Float8Order::both};
constexpr OperandFormat e4m3 = OperandFormat::float8_e4m3, e5m2 = OperandFormat::float8_e5m2;

/// Counts what operations ought to launch and move.
class LaunchCounter final : public ForwardingOps {
 public:
  explicit LaunchCounter(Ops& ops) : ForwardingOps(ops) {}
  void perform(const Operation& operation) override {
    count_.add(operation);
    inner().perform(operation);
  }
  void publish() override {
    count_.flush();
    inner().publish();
  }
  [[nodiscard]] cuda::GpuKernelCount::Counted total() const { return count_.total(); }

 private:
  cuda::GpuKernelCount count_;
};

class CudaFloat8 : public ::testing::Test {
 protected:
  Tensor room(DType dtype, const Sizes& sizes) {
    const std::int64_t num_bytes = sizes.num_elements() * size_of(dtype);
    memory_.emplace_back(device_.memory().allocate(num_bytes),
                         [this](std::byte* address) { device_.memory().release(address, 0); });
    return {memory_.back().get(), dtype, sizes};
  }
  Tensor tensor(DType dtype, const Sizes& sizes, unsigned seed) {
    const Tensor x = room(dtype, sizes);
    ops_.upload(x, Numbers::random(dtype, sizes, seed).bytes().data());
    return x;
  }
  RoundedOperand rounded(const Tensor& x, Float8Order order) {
    return {.memory = room(DType::int32, {float8_size(x.num_elements(), order)}), .order = order};
  }
  std::vector<std::byte> bytes_of(const Tensor& x) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(x.num_bytes()));
    ops_.download(bytes.data(), x);
    return bytes;
  }

  cuda::Device device_{0};
  std::vector<std::shared_ptr<std::byte>> memory_;
  cuda::CudaOps ops_{device_, {}};
};

// What q and k do: two matmuls of x forward, and of each dy one for the weight and one for x.
TEST_F(CudaFloat8, AGroupTakesTwoLaunchesAndItsBytes) {
  for (const DType dtype : {DType::bfloat16, DType::float32}) {
    constexpr std::int64_t N = 80, D = 144, F = 32;
    const Tensor x = tensor(dtype, {N, D}, 1), w[] = {tensor(dtype, {F, D}, 2), tensor(dtype, {F, D}, 3)},
                 y[] = {room(dtype, {N, F}), room(dtype, {N, F})}, dx = room(dtype, {N, D}),
                 dw[] = {room(DType::float32, {F, D}), room(DType::float32, {F, D})};
    LaunchCounter counted(ops_);
    const auto multiply = [&](MatmulArgs args, RoundedOperand& a, RoundedOperand& b, OperandFormat a_format) {
      args.a_format = a_format;
      args.b_format = e4m3;
      args.a_rounded = a;
      args.b_rounded = b;
      counted.matmul(args);
      a.is_made = b.is_made = true;
    };
    const std::int64_t width = size_of(dtype), of_x = N * D, of_w = F * D, of_y = N * F;
    const auto expect = [&](std::int64_t kernels, std::int64_t bytes) {
      counted.publish();
      ops_.finish();
      EXPECT_EQ(counted.total().kernels, kernels);
      EXPECT_EQ(counted.total().bytes, bytes);
    };
    RoundedOperand x_rounded = rounded(x, Float8Order::as_is), turned = rounded(x, Float8Order::transposed),
                   w_rounded[] = {rounded(w[0], Float8Order::as_is), rounded(w[1], Float8Order::as_is)},
                   w_turned[] = {rounded(w[0], Float8Order::transposed), rounded(w[1], Float8Order::transposed)},
                   dy[] = {rounded(y[0], Float8Order::both), rounded(y[1], Float8Order::both)};
    ops_.finish();
    const std::int64_t moved_before = emulated::num_bytes_moved;
    const long enqueued_before = emulated::num_enqueued_by_this_thread();
    for (const int i : {0, 1})
      multiply({.a = x, .b = w[i], .c = y[i], .transpose_b = true}, x_rounded, w_rounded[i], e4m3);
    // Read twice, written once; then read by the matmuls, which write y.
    const std::int64_t forward = (2 * width + 1) * (of_x + 2 * of_w) + 2 * (of_x + of_w) + 2 * width * of_y;
    expect(2 + 2, forward);

    for (const int i : {0, 1}) multiply({.a = y[i], .b = x, .c = dw[i], .transpose_a = true}, dy[i], turned, e5m2);
    for (const int i : {0, 1})
      multiply({.a = y[i], .b = w[i], .c = dx, .accumulates = i > 0}, dy[i], w_turned[i], e5m2);
    const std::int64_t backward = (2 * width + 1) * (of_x + 2 * of_w) + (2 * width + 2) * 2 * of_y + 2 * (of_y + of_x) +
                                  2 * 4 * of_w + 2 * (of_y + of_w) + 3 * width * of_x;
    expect(2 + 2 + 2 + 4, forward + backward);
    EXPECT_EQ(emulated::num_enqueued_by_this_thread() - enqueued_before, 10);
    EXPECT_EQ(emulated::num_bytes_moved - moved_before, forward + backward);
  }
}

/// A program of matmuls, and of what else writes their operands, on tensors and memory that are few.
class RandomProgram {
 public:
  static constexpr std::size_t num_tensors = 9;
  // Of two orders each, at distances of half their size, so that neighbours overlap.
  static constexpr std::size_t num_memories = 24;
  static constexpr std::int64_t memory_size = float8_size(matrix_side * matrix_side, Float8Order::both);

  /// `shares`: memory is reused, and what waits may wait. Otherwise each matmul is by itself, in memory of its own.
  RandomProgram(Ops& ops, const Tensor& values, const Tensor& memory, bool shares)
      : ops_(ops), values_(values), memory_(memory), shares_(shares) {}

  void run(unsigned seed, int num_operations) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) { return random() % n; };
    for (int i = 0; i < num_operations; ++i) {
      const std::size_t a = below(num_tensors), b = below(num_tensors), c = below(num_tensors);
      const std::size_t first = below(num_memories), second = (first + 2 + below(num_memories - 3)) % num_memories;
      const auto what = below(16);
      const bool ta = below(2) == 0, tb = below(2) == 0, adds = below(3) == 0, is_a_gradient = below(2) == 0;
      const Float8Order a_order = float8_orders[below(3)], b_order = float8_orders[below(3)];
      if (what == 0) {
        ops_.upload(tensor(c),
                    Numbers::random(DType::float32, {matrix_side, matrix_side}, seed + static_cast<unsigned>(i))
                        .bytes()
                        .data());
        written(c);
      } else if (what == 1) {
        ops_.scale(tensor(c), 0.125);
        written(c);
      } else if (a != b && c != a && c != b) {
        MatmulArgs args = {.a = tensor(a),
                           .b = tensor(b),
                           .c = tensor(c),
                           .transpose_a = ta,
                           .transpose_b = tb,
                           .accumulates = adds,
                           .a_format = is_a_gradient ? e5m2 : e4m3,
                           .b_format = e4m3};
        const bool looks = below(2) == 0;
        const std::size_t of_a = looks ? made_of(a, args.a_format, args.a_order()).value_or(first) : first;
        const std::size_t of_b = looks ? made_of(b, args.b_format, args.b_order()).value_or(second) : second;
        if (of_a < of_b + 2 && of_b < of_a + 2) continue;
        args.a_rounded = place(of_a, {a, args.a_format, a_order}, args.a_order());
        args.b_rounded = place(of_b, {b, args.b_format, b_order}, args.b_order());
        if (!shares_) {
          args.a_rounded = {.memory = alone(0, args.a_rounded.order), .order = args.a_rounded.order};
          args.b_rounded = {.memory = alone(1, args.b_rounded.order), .order = args.b_rounded.order};
        }
        ops_.matmul(args);
        written(c);
        if (!shares_) ops_.publish();
      }
    }
    ops_.publish();
  }
  [[nodiscard]] int num_reused() const { return num_reused_; }

 private:
  struct Held {
    std::size_t tensor = num_tensors;  // none
    OperandFormat format = OperandFormat::own;
    Float8Order order = Float8Order::as_is;
  };

  [[nodiscard]] Tensor tensor(std::size_t i) const {
    return values_.rows(static_cast<std::int64_t>(i) * matrix_side, matrix_side);
  }
  [[nodiscard]] Tensor memory(std::size_t i, Float8Order order) const {
    return memory_.rows(static_cast<std::int64_t>(i) * memory_size / 2, float8_size(matrix_side * matrix_side, order));
  }
  void written(std::size_t i) {
    for (Held& held : held_)
      if (held.tensor == i) held = {};
  }
  [[nodiscard]] Tensor alone(std::size_t i, Float8Order order) const {
    return memory_.rows(
        (static_cast<std::int64_t>(num_memories) + 1) * memory_size / 2 + static_cast<std::int64_t>(i) * memory_size,
        float8_size(matrix_side * matrix_side, order));
  }
  static bool has(const Held& held, std::size_t x, OperandFormat format, Float8Order read) {
    return held.tensor == x && held.format == format && (held.order == read || held.order == Float8Order::both);
  }
  [[nodiscard]] std::optional<std::size_t> made_of(std::size_t x, OperandFormat format, Float8Order read) const {
    for (std::size_t i = 0; i < num_memories; ++i)
      if (has(held_[i], x, format, read)) return i;
    return std::nullopt;
  }
  /// Where a tensor has been rounded, or room for it.
  RoundedOperand place(std::size_t i, Held wanted, Float8Order read) {
    Held& held = held_[i];
    if (has(held, wanted.tensor, wanted.format, read)) {
      ++num_reused_;
      return {.memory = memory(i, held.order), .order = held.order, .is_made = true};
    }
    if (wanted.order != Float8Order::both) wanted.order = read;
    const Tensor made = memory(i, wanted.order);
    for (std::size_t other = 0; other < num_memories; ++other)
      if (overlap(made, memory(other, held_[other].order))) held_[other] = {};
    held = wanted;
    return {.memory = made, .order = wanted.order};
  }

  Ops& ops_;
  Tensor values_, memory_;
  bool shares_;
  std::array<Held, num_memories> held_ = {};
  int num_reused_ = 0;
};

TEST_F(CudaFloat8, SharedAndHeldBackOperandsChangeNoBit) {
  int num_reused = 0;
  long launched_alone = 0, launched_shared = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    std::vector<std::byte> results[2];
    for (const bool shares : {false, true}) {
      const Tensor values = tensor(
          DType::float32, {matrix_side * static_cast<std::int64_t>(RandomProgram::num_tensors), matrix_side}, seed);
      const Tensor memory = room(DType::int32, {(static_cast<std::int64_t>(RandomProgram::num_memories) + 5) *
                                                RandomProgram::memory_size / 2});
      LaunchCounter counted(ops_);
      RandomProgram program(counted, values, memory, shares);
      ops_.finish();
      const long before = emulated::num_enqueued_by_this_thread();
      program.run(seed, 40);
      (shares ? launched_shared : launched_alone) += emulated::num_enqueued_by_this_thread() - before;
      num_reused += program.num_reused();
      results[shares ? 1 : 0] = bytes_of(values);
    }
    EXPECT_EQ(results[0], results[1]) << "program " << seed;
  }
  EXPECT_GT(num_reused, 200) << "programs reuse nothing";
  EXPECT_LT(launched_shared, 9 * launched_alone / 10) << "nothing waits";
}

// Zero tokens: the weight is rounded all the same, since a later matmul may read it.
TEST_F(CudaFloat8, AnEmptyMatmulRoundsWhatItMakes) {
  const Tensor x = tensor(DType::float32, {matrix_side, matrix_side}, 1),
               w = tensor(DType::float32, {matrix_side, matrix_side}, 2),
               y = room(DType::float32, {matrix_side, matrix_side}),
               expected = room(DType::float32, {matrix_side, matrix_side});
  RoundedOperand of_w = rounded(w, Float8Order::as_is), of_none = rounded(x.rows(0, 0), Float8Order::as_is);
  const auto args = [&](const Tensor& a, const Tensor& c, const RoundedOperand& of_a) {
    return MatmulArgs{.a = a,
                      .b = w,
                      .c = c,
                      .transpose_b = true,
                      .a_format = e4m3,
                      .b_format = e4m3,
                      .a_rounded = of_a,
                      .b_rounded = of_w};
  };
  ops_.matmul(args(x, expected, rounded(x, Float8Order::as_is)));
  of_w = rounded(w, Float8Order::as_is);
  ops_.matmul(args(x.rows(0, 0), y.rows(0, 0), of_none));
  of_w.is_made = true;
  ops_.matmul(args(x, y, rounded(x, Float8Order::as_is)));
  EXPECT_EQ(bytes_of(y), bytes_of(expected));
}

}  // namespace
}  // namespace echelon
