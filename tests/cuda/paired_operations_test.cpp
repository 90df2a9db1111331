// A norm's gradient and the norm after it, or a row_exp and its losses, are one launch with the values of both
// (ops/gpu/paired_operations.h).
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

class CudaPairedOperations : public ::testing::Test {
 protected:
  using Layer = std::function<void(Ops& ops, std::vector<Tensor>& tensors)>;

  /// Enqueues `layer` on the device, whose tensors must then be those of the reference. Returns its launches.
  long launches_of(std::vector<Numbers> numbers, const Layer& layer) {
    std::vector<Tensor> host, on_device;
    for (Numbers& each : numbers) {
      host.push_back(each.tensor());
      memory_.emplace_back(device_.memory().allocate(host.back().num_bytes()),
                           [this](std::byte* address) { device_.memory().release(address, 0); });
      on_device.emplace_back(memory_.back().get(), host.back().dtype, host.back().sizes);
      ops_.upload(on_device.back(), each.bytes().data());
    }
    ops_.finish();
    const long before = emulated::activity().num_enqueued;
    layer(ops_, on_device);
    ops_.publish();
    const long launches = emulated::activity().num_enqueued - before;
    ReferenceOps reference;
    layer(reference, host);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      Numbers actual(on_device[i].dtype, on_device[i].sizes);
      ops_.download(actual.bytes().data(), on_device[i]);
      // A loss is a sum of differences that have the precision of the logits.
      const DType dtype = on_device[i].dtype == DType::float64 ? on_device[0].dtype : on_device[i].dtype;
      expect_near(actual, numbers[i], 4 * tolerance_of(dtype), "tensor " + std::to_string(i));
    }
    return launches;
  }

  cuda::Device device_{0};
  std::vector<std::shared_ptr<std::byte>> memory_;
  cuda::CudaOps ops_{device_, {}};
};

enum : std::size_t { dy, x, w, b, mean, rstd, dx, dw, db, other_x, other_w, other_mean, other_rstd, out };

/// By those names; N rows of D.
std::vector<Numbers> norm_numbers(DType dtype, std::int64_t N, std::int64_t D) {
  const DType sums = accumulate_dtype(dtype);
  const auto random = [](DType of, const Sizes& sizes, unsigned seed) { return Numbers::random(of, sizes, seed); };
  return {random(dtype, {N, D}, 1), random(dtype, {N, D}, 2),  random(dtype, {D}, 3),    random(dtype, {D}, 4),
          random(sums, {N}, 5),     random(sums, {N}, 6),      random(dtype, {N, D}, 7), random(sums, {D}, 8),
          random(sums, {D}, 9),     random(dtype, {N, D}, 10), random(dtype, {D}, 11),   random(sums, {N}, 12),
          random(sums, {N}, 13),    random(dtype, {N, D}, 14)};
}

void rms_gradient(Ops& ops, const std::vector<Tensor>& t) {
  ops.rms_norm_backward({.dy = t[dy],
                         .x = t[x],
                         .w = t[w],
                         .rstd = t[rstd],
                         .dx = t[dx],
                         .dw = t[dw],
                         .dresidual = t[dx],
                         .gain_offset = 1});
}
void rms_norm(Ops& ops, const std::vector<Tensor>& t, std::size_t from, std::size_t to) {
  ops.rms_norm({.x = t[from], .w = t[other_w], .y = t[to], .rstd = t[other_rstd], .rounds_before_gain = true});
}

// Rows of whole blocks and of a part, more rows than blocks have at a time; the result where dy was.
TEST_F(CudaPairedOperations, ANormFollowsTheGradientOfAnother) {
  for (const DType dtype : {DType::float32, DType::bfloat16})
    for (const auto& [N, D] : {std::pair(5, 64), {70, 64}, {9, 1056}, {40, 2048}})
      for (const std::size_t to : {std::size_t{dy}, std::size_t{out}}) {
        SCOPED_TRACE(std::to_string(N) + " x " + std::to_string(D));
        EXPECT_EQ(launches_of(norm_numbers(dtype, N, D),
                              [&](Ops& ops, std::vector<Tensor>& t) {
                                rms_gradient(ops, t);
                                rms_norm(ops, t, other_x, to);
                              }),
                  1);
        EXPECT_EQ(launches_of(norm_numbers(dtype, N, D),
                              [&](Ops& ops, std::vector<Tensor>& t) {
                                ops.layer_norm_backward({.dy = t[dy],
                                                         .x = t[x],
                                                         .w = t[w],
                                                         .mean = t[mean],
                                                         .rstd = t[rstd],
                                                         .dx = t[dx],
                                                         .dw = t[dw],
                                                         .db = t[db]});
                                ops.layer_norm({.x = t[other_x],
                                                .w = t[other_w],
                                                .b = t[b],
                                                .y = t[to],
                                                .mean = t[other_mean],
                                                .rstd = t[other_rstd]});
                              }),
                  1);
      }
}

TEST_F(CudaPairedOperations, ANormOfWhatTheGradientWritesIsItsOwnLaunch) {
  EXPECT_EQ(launches_of(norm_numbers(DType::float32, 6, 64),
                        [](Ops& ops, std::vector<Tensor>& t) {
                          rms_gradient(ops, t);
                          rms_norm(ops, t, dx, out);
                        }),
            2);
  EXPECT_EQ(launches_of(norm_numbers(DType::float32, 6, 64),
                        [](Ops& ops, std::vector<Tensor>& t) {
                          rms_gradient(ops, t);
                          rms_norm(ops, t, other_x, x);  // which other rows of the gradient may still read
                        }),
            2);
}

// Their rows do not fit into registers: a launch for each gradient, and one for the norm.
TEST_F(CudaPairedOperations, ANormOfWideRowsIsItsOwnLaunch) {
  for (const std::int64_t D : {4104, 67})
    EXPECT_EQ(launches_of(norm_numbers(DType::float32, 3, D),
                          [](Ops& ops, std::vector<Tensor>& t) {
                            rms_gradient(ops, t);
                            rms_norm(ops, t, other_x, out);
                          }),
              3);
}

TEST_F(CudaPairedOperations, LossesFollowTheSumsOfTheirRows) {
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64})
    for (const bool is_whole : {true, false}) {
      constexpr std::int64_t N = 23, V = 71;
      const DType sums = accumulate_dtype(dtype);
      std::vector<std::int32_t> targets;
      for (int n = 0; n < N; ++n) targets.push_back(n % 5 == 0 ? ignored_target : n * 3);
      std::vector<Numbers> numbers = {Numbers::random(dtype, {N, V}, 1, 3.0), Numbers::tokens(targets),
                                      Numbers::random(sums, {N}, 2),          Numbers::random(sums, {N}, 3),
                                      Numbers::random(sums, {N}, 4),          Numbers::random(sums, {N}, 5),
                                      Numbers::random(DType::float64, {1}, 6)};
      EXPECT_EQ(
          launches_of(
              std::move(numbers),
              [&](Ops& ops, std::vector<Tensor>& t) {
                ops.row_exp({.logits = t[0],
                             .targets = t[1],
                             .max = t[2],
                             .sum = t[3],
                             .target_logit = t[4],
                             .valid_columns = V});
                if (!is_whole) ops.rescale_sums({.sum = t[3], .max = t[2], .row_max = t[2]});
                ops.cross_entropy(
                    {.max = t[2], .sum = t[3], .target_logit = t[4], .targets = t[1], .lse = t[5], .loss_sum = t[6]});
                ops.fill(t[0], 0);  // the logits belong to the backend
              }),
          is_whole ? 2 : 4);
    }
}

}  // namespace
}  // namespace echelon
