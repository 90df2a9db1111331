// Fills, rotations, sums of squares and updates that follow each other are one launch, with the values of one each
// (ops/gpu/joined_operations.h).
#include "cuda/emulated/runtime.h"
#include "cuda/ops/cuda_ops.h"
#include "numbers.h"
#include "ops/reference/reference_ops.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

namespace echelon {
namespace {

constexpr std::int64_t total = 96;

class CudaJoinedOperations : public ::testing::Test {
 protected:
  Tensor moved(Numbers numbers) {
    const Tensor host = numbers.tensor();
    memory_.emplace_back(device_.memory().allocate(host.num_bytes()),
                         [this](std::byte* address) { device_.memory().release(address, 0); });
    const Tensor x(memory_.back().get(), host.dtype, host.sizes);
    ops_.upload(x, numbers.bytes().data());
    return x;
  }
  Numbers read(const Tensor& x) {
    Numbers numbers(x.dtype, x.sizes);
    ops_.download(numbers.bytes().data(), x);
    return numbers;
  }
  /// Kernels that `enqueue` and what it delays take.
  template <class F>
  long launches_of(F&& enqueue) {
    ops_.finish();
    const long before = emulated::activity().num_enqueued;
    enqueue();
    ops_.publish();
    return emulated::activity().num_enqueued - before;
  }

  cuda::Device device_{0};
  std::vector<std::shared_ptr<std::byte>> memory_;
  cuda::CudaOps ops_{device_, {}};
};

struct State {
  Tensor param, grad, m, v, scalars;

  /// The update of some elements.
  [[nodiscard]] AdamWArgs update(Range range, double weight_decay, double eps) const {
    const auto part = [range](const Tensor& x) { return x.rows(range.first, range.count); };
    return {.param = part(param),
            .master = part(param),
            .grad = part(grad),
            .m = part(m),
            .v = part(v),
            .scalars = scalars,
            .beta1 = 0.9,
            .beta2 = 0.95,
            .eps = eps,
            .weight_decay = weight_decay,
            .noise = {.slice = TensorSlice(Sizes{range.count})}};
  }
};

struct Update {
  Range range;
  double weight_decay;
  double eps = 1e-8;
};

struct UpdateCase {
  std::vector<Update> updates;
  DType moments;
  long launches;
};

/// Parameters of two elements, with a gap after each.
std::vector<Update> updates_apart(std::int64_t count) {
  std::vector<Update> updates;
  for (std::int64_t i = 0; i < count; ++i) updates.push_back({{2 * i, 1}, 0.1 * static_cast<double>(i % 2)});
  return updates;
}

TEST_F(CudaJoinedOperations, UpdatesAreOneLaunch) {
  const UpdateCase cases[] = {
      {{{{0, 32}, 0.1}, {{32, 16}, 0.1}, {{48, 48}, 0.1}}, DType::float32, 1},
      {{{{0, 32}, 0.1}, {{32, 16}, 0.0}, {{48, 48}, 0.0}}, DType::float32, 1},  // norms do not decay
      {{{{0, 32}, 0.1}, {{48, 48}, 0.1}}, DType::float32, 1},                   // padding is between them
      {{{{48, 48}, 0.1}, {{0, 32}, 0.1}}, DType::float32, 1},
      {{{{0, 32}, 0.1}, {{32, 16}, 0.1}}, DType::bfloat16, 1},  // each draws its own bits
      {updates_apart(32), DType::float32, 1},
      {updates_apart(33), DType::float32, 2},  // what a kernel's arguments have room for
      {updates_apart(33), DType::bfloat16, 2},
      {{{{0, 32}, 0.1}, {{32, 16}, 0.1, 1e-6}}, DType::float32, 2},
      {{{{0, 32}, 0.1}, {{16, 32}, 0.1}}, DType::float32, 2},  // one after the other
  };
  for (const UpdateCase& c : cases) {
    const Numbers param = Numbers::random(DType::float32, {total}, 1),
                  grad = Numbers::random(DType::float32, {total}, 2), m = Numbers::random(c.moments, {total}, 3),
                  v(c.moments, {total});
    Numbers scalars(DType::float64, {num_adamw_scalars});
    const AdamWScalars now = {.lr = 0.1, .step_size = 0.1, .sqrt_bias2 = 0.5, .step = 3};
    std::memcpy(scalars.bytes().data(), &now, sizeof now);
    const State on_device = {moved(param), moved(grad), moved(m), moved(v), moved(scalars)};
    EXPECT_EQ(launches_of([&] {
                for (const Update& each : c.updates)
                  ops_.adamw(on_device.update(each.range, each.weight_decay, each.eps));
              }),
              c.launches);
    ReferenceOps reference;
    const State expected = {param, grad, m, v, scalars};
    for (const Update& each : c.updates) reference.adamw(expected.update(each.range, each.weight_decay, each.eps));
    expect_near(read(on_device.param), param, tolerance_of(DType::float32), "parameters");
    expect_near(read(on_device.m), m, tolerance_of(c.moments), "first moments");
    expect_near(read(on_device.v), v, tolerance_of(c.moments), "second moments");
  }
}

TEST_F(CudaJoinedOperations, SquaresAreOneLaunchAndTheirSum) {
  const Numbers x = Numbers::random(DType::float32, {total}, 1);
  Numbers sum(DType::float64, {1});
  const Tensor x_device = moved(x), sum_device = moved(sum);
  const auto add = [](Ops& ops, const Tensor& of, const Tensor& to, Range range) {
    ops.sum_of_squares(of.rows(range.first, range.count), to);
  };
  const Range parts[] = {{0, 32}, {32, 4}, {48, 7}, {36, 4}, {60, 36}};  // some follow the one before
  EXPECT_EQ(launches_of([&] {
              for (const Range& part : parts) add(ops_, x_device, sum_device, part);
            }),
            1);
  ReferenceOps reference;
  for (const Range& part : parts) add(reference, x, sum, part);
  expect_near(read(sum_device), sum, tolerance_of(DType::float32), "the sum of squares");
}

TEST_F(CudaJoinedOperations, FillsOfOneValueAreOneLaunch) {
  const Numbers x = Numbers::random(DType::float32, {total}, 1);
  const Tensor x_device = moved(x);
  const auto fill = [](Ops& ops, const Tensor& of, Range range, double value) {
    ops.fill(of.rows(range.first, range.count), value);
  };
  const Range parts[] = {{0, 1}, {8, 32}, {40, 5}, {88, 8}};
  EXPECT_EQ(launches_of([&] {
              for (const Range& part : parts) fill(ops_, x_device, part, 2.5);
            }),
            1);
  EXPECT_EQ(launches_of([&] {
              fill(ops_, x_device, {52, 4}, 1);
              fill(ops_, x_device, {60, 4}, 2);
              fill(ops_, x_device, {60, 8}, 2);  // overlaps
              ops_.fill(x_device.rows(72, 0), 2);
            }),
            3);
  ReferenceOps reference;
  for (const Range& part : parts) fill(reference, x, part, 2.5);
  fill(reference, x, {52, 4}, 1);
  fill(reference, x, {60, 8}, 2);
  expect_near(read(x_device), x, 0, "what was filled");
}

TEST_F(CudaJoinedOperations, RotationsOfQueriesAndKeysAreOneLaunch) {
  constexpr std::int64_t B = 2, T = 3, C = 8;
  const Numbers q = Numbers::random(DType::float32, {B, T, 6, C}, 1),
                k = Numbers::random(DType::float32, {B, T, 2, C}, 2),
                cos = Numbers::random(DType::float32, {T, C / 2}, 3),
                sin = Numbers::random(DType::float32, {T, C / 2}, 4);
  const Tensor on_device[] = {moved(q), moved(k)}, cos_device = moved(cos), sin_device = moved(sin);
  const auto rotate = [](Ops& ops, const Tensor& x, const Tensor& cos_of, const Tensor& sin_of, bool inverse) {
    ops.rope({.x = x, .y = x, .cos = cos_of, .sin = sin_of, .inverse = inverse});
  };
  ReferenceOps reference;
  EXPECT_EQ(launches_of([&] {
              for (const Tensor& x : on_device) rotate(ops_, x, cos_device, sin_device, false);
            }),
            1);
  EXPECT_EQ(launches_of([&] {
              rotate(ops_, on_device[0], cos_device, sin_device, true);
              rotate(ops_, on_device[0], cos_device, sin_device, true);  // what the first writes
              rotate(ops_, on_device[1], cos_device, sin_device, false);
            }),
            3);
  for (const Tensor& x : {q.tensor(), k.tensor()}) rotate(reference, x, cos, sin, false);
  for (const Tensor& x : {q.tensor(), q.tensor()}) rotate(reference, x, cos, sin, true);
  rotate(reference, k, cos, sin, false);
  expect_near(read(on_device[0]), q, 10 * tolerance_of(DType::float32), "q");
  expect_near(read(on_device[1]), k, 10 * tolerance_of(DType::float32), "k");
}

// What reads the updated parameters comes after the update.
TEST_F(CudaJoinedOperations, ComesBeforeWhatFollows) {
  const Numbers x = Numbers::random(DType::float32, {total}, 1);
  Numbers sum(DType::float64, {1});
  const Tensor x_device = moved(x), sum_device = moved(sum);
  ops_.sum_of_squares(x_device, sum_device);
  ops_.fill(x_device, 0.0);
  ReferenceOps reference;
  reference.sum_of_squares(x, sum);
  expect_near(read(sum_device), sum, tolerance_of(DType::float32), "the sum of squares");
}

}  // namespace
}  // namespace echelon
