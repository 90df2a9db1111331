// Sums over the rows of a matrix are one launch, whose last blocks add what the others left (cuda/ops/column_sums.h),
// and have the same bits whichever block is the last.
#include "cuda/emulated/execution.h"
#include "cuda/emulated/runtime.h"
#include "cuda/ops/cuda_ops.h"
#include "numbers.h"
#include "ops/reference/reference_ops.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

namespace echelon {
namespace {

using Sum = std::function<void(Ops& ops, std::vector<Tensor>& tensors)>;

/// Tensors after `sum` on the device, which must take one launch.
std::vector<Numbers> summed_on_device(std::vector<Numbers> numbers, const Sum& sum, unsigned seed) {
  emulated::seed(seed);
  cuda::Device device(0);
  cuda::CudaOps ops(device, {});
  std::vector<std::shared_ptr<std::byte>> memory;
  std::vector<Tensor> tensors;
  for (Numbers& each : numbers) {
    const Tensor host = each.tensor();
    memory.emplace_back(device.memory().allocate(host.num_bytes()),
                        [&device](std::byte* address) { device.memory().release(address, 0); });
    tensors.emplace_back(memory.back().get(), host.dtype, host.sizes);
    ops.upload(tensors.back(), each.bytes().data());
  }
  ops.finish();
  const long before = emulated::activity().num_enqueued;
  for (int repeat = 0; repeat < 2; ++repeat) sum(ops, tensors);  // what the blocks count is zero again
  ops.publish();
  EXPECT_EQ(emulated::activity().num_enqueued - before, 2);
  for (std::size_t i = 0; i < numbers.size(); ++i) ops.download(numbers[i].bytes().data(), tensors[i]);
  return numbers;
}

/// x, dy [N, D]; statistics [N]; sums [D] and [D].
void expect_sums(DType dtype, std::int64_t N, std::int64_t D, const Sum& sum) {
  const DType sums = accumulate_dtype(dtype);
  const std::vector<Numbers> numbers = {Numbers::random(dtype, {N, D}, 1), Numbers::random(dtype, {N, D}, 2),
                                        Numbers::random(sums, {N}, 3),     Numbers::random(sums, {N}, 4),
                                        Numbers::random(sums, {D}, 5),     Numbers::random(sums, {D}, 6)};
  std::vector<Numbers> expected = numbers;
  std::vector<Tensor> tensors;
  for (Numbers& each : expected) tensors.push_back(each.tensor());
  ReferenceOps reference;
  for (int repeat = 0; repeat < 2; ++repeat) sum(reference, tensors);
  const std::vector<Numbers> first = summed_on_device(numbers, sum, 1), second = summed_on_device(numbers, sum, 5);
  for (const std::size_t i : {4, 5}) {
    expect_near(first[i], expected[i], 10 * tolerance_of(dtype), "sum " + std::to_string(i));
    EXPECT_EQ(first[i], second[i]) << "bits of sum " << i;
  }
}

TEST(CudaColumnSums, AreOneLaunch) {
  for (const DType dtype : {DType::float32, DType::bfloat16})
    for (const auto& [N, D] : {std::pair(1, 8), {65, 7}, {300, 72}, {1500, 264}}) {
      SCOPED_TRACE(std::to_string(N) + " x " + std::to_string(D));
      expect_sums(dtype, N, D, [](Ops& ops, std::vector<Tensor>& t) { ops.bias_backward(t[1], t[4]); });
      expect_sums(dtype, N, D, [](Ops& ops, std::vector<Tensor>& t) {
        ops.layer_norm_backward_weight({.dy = t[1], .x = t[0], .mean = t[2], .rstd = t[3], .dw = t[4], .db = t[5]});
      });
      expect_sums(dtype, N, D, [](Ops& ops, std::vector<Tensor>& t) {
        ops.gelu_backward({.dy = t[1], .x = t[0], .dx = t[1], .dbias = t[4]});
      });
    }
}

}  // namespace
}  // namespace echelon
