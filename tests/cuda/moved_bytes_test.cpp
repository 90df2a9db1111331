// What kernels and matmuls read and write on the emulated device are the bytes of ops/cost.h, less what fusing saves
// (ops/gpu/gpu_kernels.h). Of kernels that read each operand once, in packs of 16 bytes; norms, softmax and attention
// read rows again, from caches.
#include "cuda/emulated/runtime.h"
#include "cuda/ops/cuda_ops.h"
#include "numbers.h"
#include "ops/gpu/gpu_kernels.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

namespace echelon {
namespace {

/// Passes operations on and counts what they ought to be.
class CountedOps final : public Ops {
 public:
  explicit CountedOps(Ops& ops) : ops_(ops) {}
  void perform(const Operation& operation) override {
    count_.add(operation);
    ops_.perform(operation);
  }
  void upload(Tensor out, const void* host) override { ops_.upload(out, host); }
  void download(void* host, Tensor x) override { ops_.download(host, x); }
  void publish() override { ops_.publish(); }
  void finish() override {
    count_.flush();
    ops_.finish();
  }
  [[nodiscard]] std::int64_t bytes() const { return count_.total().bytes; }

 private:
  Ops& ops_;
  cuda::GpuKernelCount count_;
};

class MovedBytes : public ::testing::Test {
 protected:
  Tensor tensor(DType dtype, const Sizes& sizes) {
    Numbers numbers = Numbers::random(dtype, sizes, static_cast<unsigned>(memory_.size()) + 1);
    memory_.emplace_back(device_.memory().allocate(numbers.tensor().num_bytes()),
                         [this](std::byte* address) { device_.memory().release(address, 0); });
    const Tensor x(memory_.back().get(), dtype, sizes);
    ops_.upload(x, numbers.bytes().data());
    return x;
  }
  /// `uncounted`: of single values, which are no packs.
  void expect_as_counted(const char* what, const std::function<void(Ops&)>& layer, std::int64_t uncounted = 0) {
    ops_.finish();
    const std::int64_t before = emulated::num_bytes_moved;
    CountedOps counted(ops_);
    layer(counted);
    counted.finish();
    EXPECT_EQ(emulated::num_bytes_moved - before, counted.bytes() - uncounted) << what;
    EXPECT_GT(counted.bytes(), uncounted) << what;
  }

  cuda::Device device_{0};
  std::vector<std::shared_ptr<std::byte>> memory_;
  cuda::CudaOps ops_{device_, {}};
};

TEST_F(MovedBytes, OfElementwiseKernels) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const Tensor x = tensor(dtype, {32, 64}), y = tensor(dtype, {32, 64}), z = tensor(dtype, {32, 64}),
                 dy = tensor(dtype, {32, 64}), sum = tensor(DType::float64, {1});
    expect_as_counted("add", [&](Ops& ops) { ops.add(z, x, y); });
    expect_as_counted("fills", [&](Ops& ops) {
      ops.fill(x, 0.5);
      ops.fill(y.rows(3, 20), 0.5);
    });
    expect_as_counted("scale", [&](Ops& ops) { ops.scale(x, 2); });
    expect_as_counted("swiglu", [&](Ops& ops) { ops.swiglu({.gate = x, .up = y, .y = z}); });
    expect_as_counted("swiglu_backward", [&](Ops& ops) {
      ops.swiglu_backward({.dy = dy, .gate = x, .up = y, .dgate = x, .dup = y, .y = dy});
    });
    expect_as_counted(
        "squares",
        [&](Ops& ops) {
          for (const Tensor& each : {x, y, z}) ops.sum_of_squares(each.flat(), sum);
        },
        3 * 2 * 8);
    const Tensor q = tensor(dtype, {1, 32, 4, 16}), k = tensor(dtype, {1, 32, 2, 16}),
                 cos = tensor(DType::float32, {32, 8}), sin = tensor(DType::float32, {32, 8});
    expect_as_counted("rope of q and k", [&](Ops& ops) {
      for (const Tensor& each : {q, k}) ops.rope({.x = each, .y = each, .cos = cos, .sin = sin});
    });
  }
}

TEST_F(MovedBytes, OfUpdates) {
  for (const DType moments : {DType::float32, DType::bfloat16}) {
    const Tensor param = tensor(DType::bfloat16, {4096}), master = tensor(DType::float32, {4096}),
                 grad = tensor(DType::float32, {4096}), m = tensor(moments, {4096}), v = tensor(moments, {4096}),
                 scalars = tensor(DType::float64, {num_adamw_scalars});
    expect_as_counted("updates", [&](Ops& ops) {
      for (const std::int64_t first : {0, 1024, 3072}) {
        const auto part = [&](const Tensor& x) { return x.rows(first, 1024); };
        ops.adamw({.param = part(param),
                   .master = part(master),
                   .grad = part(grad),
                   .m = part(m),
                   .v = part(v),
                   .scalars = scalars,
                   .beta1 = 0.9,
                   .beta2 = 0.95,
                   .eps = 1e-8,
                   .noise = {.slice = TensorSlice(Sizes{1024})}});
      }
    });
  }
}

TEST_F(MovedBytes, OfMatmulsAndWhatIsFusedWithThem) {
  const DType dtype = DType::bfloat16;
  const Tensor x = tensor(dtype, {32, 48}), w = tensor(dtype, {64, 48}), b = tensor(dtype, {64}),
               y = tensor(dtype, {64, 32}), h = tensor(dtype, {32, 64}), wide = tensor(dtype, {32, 64});
  const auto product = [&](Ops& ops, std::int64_t i) {
    ops.matmul({.a = x, .b = w.rows(32 * i, 32), .c = y.rows(32 * i, 32), .transpose_b = true});
  };
  expect_as_counted("a batch", [&](Ops& ops) {
    for (const std::int64_t i : {0, 1}) product(ops, i);
  });
  expect_as_counted("a batch with biases", [&](Ops& ops) {
    for (const std::int64_t i : {0, 1}) {
      product(ops, i);
      ops.add_bias(y.rows(32 * i, 32), b.rows(32 * i, 32));
    }
  });
  expect_as_counted("bias and residual", [&](Ops& ops) {
    ops.matmul({.a = x, .b = w, .c = wide, .transpose_b = true});
    ops.add_bias(wide, b);
    ops.add(wide, wide, h);
  });
  const Tensor dw = tensor(DType::float32, {64, 48}), db = tensor(DType::float32, {64});
  expect_as_counted(
      "gradients",
      [&](Ops& ops) {
        ops.matmul({.a = h, .b = x, .c = dw, .transpose_a = true, .accumulates = true});
        ops.bias_backward(h, db);
      },
      3 * 64 * 4);  // what the sums are added to, value by value
}

}  // namespace
}  // namespace echelon
