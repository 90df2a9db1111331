// The largest magnitudes that kernels leave of what they write, for float8 matmuls (cuda/ops/amax.h): those of the
// values in memory, in every format, at sizes that leave threads and blocks without values, time after time.
#include "cuda/emulated/runtime.h"
#include "cuda/ops/cuda_ops.h"
#include "numbers.h"
#include "ops/description.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace echelon {
namespace {

class CudaAmax : public ::testing::Test {
 protected:
  Tensor room(DType dtype, const Sizes& sizes) {
    memory_.emplace_back(device_.memory().allocate(sizes.num_elements() * size_of(dtype)),
                         [this](std::byte* address) { device_.memory().release(address, 0); });
    return {memory_.back().get(), dtype, sizes};
  }
  Tensor tensor(DType dtype, const Sizes& sizes, double spread = 1) {
    const Tensor x = room(dtype, sizes);
    ops_.upload(x, Numbers::random(dtype, sizes, ++seed_, spread).bytes().data());
    return x;
  }
  Tensor measured(DType dtype, const Sizes& sizes) {
    written_.push_back(tensor(dtype, sizes).with_amax(room(DType::float32, {1})));
    return written_.back();
  }
  /// `call` is made several times, and each has left what the tensors have that were measured.
  void expect_amaxes(const std::string& what, const std::function<void()>& call) {
    for (int time = 0; time < 3; ++time) {
      call();
      for (std::size_t i = 0; i < written_.size(); ++i) {
        const Tensor& x = written_[i];
        Numbers values(x.dtype, x.sizes);
        ops_.download(values.bytes().data(), x);
        double expected = 0;
        for (std::int64_t k = 0; k < values.count(); ++k) expected = std::max(expected, std::abs(values.get(k)));
        float found = -1;
        ops_.download(&found, x.place_of_amax());
        EXPECT_EQ(found, static_cast<float>(expected)) << what << ", tensor " << i << ", time " << time;
      }
    }
    written_.clear();
  }

  cuda::Device device_{0};
  std::vector<std::shared_ptr<std::byte>> memory_;
  std::vector<Tensor> written_;
  unsigned seed_ = 0;
  cuda::CudaOps ops_{device_, {}};
};

constexpr DType dtypes[] = {DType::float32, DType::bfloat16, DType::float16};

TEST_F(CudaAmax, OfNormsAndTheirGradients) {
  for (const DType dtype : dtypes)
    for (const Sizes& sizes : {Sizes{37, 64}, Sizes{5, 33}, Sizes{3, 8200}}) {
      const DType sums = accumulate_dtype(dtype);
      const Sizes rows = {sizes[0]}, columns = {sizes[1]};
      const Tensor x = tensor(dtype, sizes), dy = tensor(dtype, sizes), w = tensor(dtype, columns),
                   b = tensor(dtype, columns), mean = room(sums, rows), rstd = room(sums, rows),
                   dw = tensor(sums, columns), db = tensor(sums, columns), past = tensor(dtype, sizes);
      const RmsNormArgs rms = {.x = x, .w = w, .y = measured(dtype, sizes), .rstd = rstd, .residual = past};
      expect_amaxes("rms_norm", [&] { ops_.rms_norm(rms); });
      const LayerNormArgs norm = {.x = x, .w = w, .b = b, .y = measured(dtype, sizes), .mean = mean, .rstd = rstd};
      expect_amaxes("layer_norm", [&] { ops_.layer_norm(norm); });
      const RmsNormBackwardArgs gradients = {
          .dy = dy, .x = x, .w = w, .rstd = rstd, .dx = measured(dtype, sizes), .dw = dw, .dresidual = past};
      const RmsNormArgs next = {.x = x, .w = w, .y = measured(dtype, sizes), .rstd = room(sums, rows)};
      expect_amaxes("rms_norm_backward and a norm", [&] {
        ops_.rms_norm_backward(gradients);
        ops_.rms_norm(next);
      });
      const LayerNormBackwardArgs both = {
          .dy = dy, .x = x, .w = w, .mean = mean, .rstd = rstd, .dx = measured(dtype, sizes), .dw = dw, .db = db};
      expect_amaxes("layer_norm_backward", [&] { ops_.layer_norm_backward(both); });
      const RmsNormBackwardInputArgs input = {.dy = dy, .x = x, .w = w, .rstd = rstd, .dx = measured(dtype, sizes)};
      expect_amaxes("rms_norm_backward_input", [&] { ops_.rms_norm_backward_input(input); });
    }
}

TEST_F(CudaAmax, OfActivationsAndTheirGradients) {
  for (const DType dtype : dtypes)
    for (const Sizes& sizes : {Sizes{80, 144}, Sizes{5, 33}, Sizes{1, 1}, Sizes{700, 40}}) {
      const Tensor x = tensor(dtype, sizes), up = tensor(dtype, sizes), dy = tensor(dtype, sizes),
                   bias = tensor(dtype, {sizes[1]}), dbias = tensor(accumulate_dtype(dtype), {sizes[1]});
      const SwigluArgs swiglu = {.gate = x, .up = up, .y = measured(dtype, sizes)};
      expect_amaxes("swiglu", [&] { ops_.swiglu(swiglu); });
      const SwigluBackwardArgs gradients = {.dy = dy,
                                            .gate = x,
                                            .up = up,
                                            .dgate = measured(dtype, sizes),
                                            .dup = measured(dtype, sizes),
                                            .y = measured(dtype, sizes)};
      expect_amaxes("swiglu_backward", [&] { ops_.swiglu_backward(gradients); });
      const GeluArgs gelu = {.x = x, .y = measured(dtype, sizes), .bias = bias};
      expect_amaxes("gelu", [&] { ops_.gelu(gelu); });
      for (const bool sums : {false, true}) {
        const GeluBackwardArgs backward = {.dy = dy,
                                           .x = x,
                                           .dx = measured(dtype, sizes),
                                           .bias = bias,
                                           .dbias = sums ? dbias : Tensor(),
                                           .y = measured(dtype, sizes)};
        expect_amaxes("gelu_backward", [&] { ops_.gelu_backward(backward); });
      }
    }
}

TEST_F(CudaAmax, OfRotatedHeads) {
  for (const DType dtype : dtypes) {
    constexpr std::int64_t B = 2, T = 7, H = 6, K = 3, C = 32;
    const DType wide = accumulate_dtype(dtype);
    const Tensor cos = tensor(wide, {T, C / 2}), sin = tensor(wide, {T, C / 2});
    const RopeArgs q = {.x = tensor(dtype, {B, T, H, C}), .y = measured(dtype, {B, T, H, C}), .cos = cos, .sin = sin},
                   k = {
                       .x = tensor(dtype, {B, T, K, C}, 3), .y = measured(dtype, {B, T, K, C}), .cos = cos, .sin = sin};
    expect_amaxes("rope of q and k", [&] {
      ops_.rope(q);
      ops_.rope(k);
    });
  }
}

// Whatever is not finite is above all else, and is forgotten with the next call.
TEST_F(CudaAmax, OfWhatIsNotFinite) {
  for (const double value : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    const Sizes sizes = {700, 40};
    Numbers values = Numbers::random(DType::bfloat16, sizes, 5);
    const Tensor gate = room(DType::bfloat16, sizes), up = tensor(DType::bfloat16, sizes),
                 y = tensor(DType::bfloat16, sizes).with_amax(room(DType::float32, {1}));
    const auto found = [&] {
      ops_.upload(gate, values.bytes().data());
      ops_.swiglu({.gate = gate, .up = up, .y = y});
      float amax = 0;
      ops_.download(&amax, y.place_of_amax());
      return amax;
    };
    const float finite = found(), before = static_cast<float>(values.get(12345));
    values.set(12345, value);
    EXPECT_FALSE(std::isfinite(found()));
    values.set(12345, before);
    EXPECT_EQ(found(), finite);
  }
}

// The same bits, with a launch less where nothing is left to be found. A weight's is found once.
TEST_F(CudaAmax, MatmulsReadWhatIsKnown) {
  constexpr std::int64_t N = 80, D = 144, F = 32;
  const DType dtype = DType::bfloat16;
  const Tensor in = tensor(dtype, {N, D}), gain = tensor(dtype, {D}), rstd = room(DType::float32, {N}),
               x = room(dtype, {N, D}).with_amax(room(DType::float32, {1})),
               w = tensor(dtype, {F, D}).with_amax(room(DType::float32, {1}));
  ops_.rms_norm({.x = in, .w = gain, .y = x, .rstd = rstd});
  ops_.finish();
  const auto multiply = [&](const Tensor& a, const Tensor& b, bool finds) {
    const Tensor y = room(dtype, {N, F});
    MatmulArgs args = rounded_in({.a = a,
                                  .b = b,
                                  .c = y,
                                  .transpose_b = true,
                                  .a_format = OperandFormat::float8_e4m3,
                                  .b_format = OperandFormat::float8_e4m3},
                                 room(DType::int32, {float8_scratch_size(N * D, F * D)}));
    args.b_rounded.finds_amax = finds;
    const std::int64_t moved_before = emulated::num_bytes_moved;
    const long before = emulated::num_enqueued_by_this_thread();
    ops_.matmul(args);
    ops_.finish();
    EXPECT_EQ(emulated::num_bytes_moved - moved_before, cost(args).bytes);
    const long launched = emulated::num_enqueued_by_this_thread() - before;
    std::vector<std::byte> bytes(static_cast<std::size_t>(y.num_bytes()));
    ops_.download(bytes.data(), y);
    return std::pair(bytes, launched);
  };
  const auto [expected, launched_alone] = multiply(x.without_amax(), w.without_amax(), false);
  const auto [found, launched_to_find] = multiply(x, w, true);
  const auto [known, launched_knowing] = multiply(x, w, false);
  EXPECT_EQ(found, expected);
  EXPECT_EQ(known, expected);
  EXPECT_EQ(launched_alone, 3);
  EXPECT_EQ(launched_to_find, 3);
  EXPECT_EQ(launched_knowing, 2);
}

}  // namespace
}  // namespace echelon
