// The backend for GPUs against the reference, on the emulated device.
#include "cuda/ops/cuda_ops.h"

#include "cuda/emulated/execution.h"
#include "ops/conformance.h"

namespace echelon {
namespace {

/// Tensors are copied to the device and back.
class CudaUnderTest final : public OpsUnderTest {
 public:
  CudaUnderTest() : device_(0), ops_(device_, {}) { emulated::seed(1); }
  [[nodiscard]] Tensors run(const std::string& /*what*/, const Tensors& tensors,
                            const OperationOnTensors& operation) override {
    Tensors moved = tensors;
    for (Numbers& numbers : moved) {
      const auto num_bytes = static_cast<std::int64_t>(numbers.bytes().size());
      std::byte* const address = device_.memory().allocate(num_bytes);
      ops_.upload({address, DType::bfloat16, {num_bytes / 2}}, numbers.bytes().data());
      numbers.lie_at(address);
    }
    operation(ops_, moved);
    for (Numbers& numbers : moved) {
      const auto num_bytes = static_cast<std::int64_t>(numbers.bytes().size());
      std::byte* const address = numbers.tensor().data;
      ops_.download(numbers.bytes().data(), {address, DType::bfloat16, {num_bytes / 2}});
      device_.memory().release(address, num_bytes);
      numbers.lie_at(nullptr);
    }
    return moved;
  }

 private:
  cuda::Device device_;
  cuda::CudaOps ops_;
};

OpsVariant variant(DType dtype) {
  return {.dtype = dtype, .make = [] { return std::make_unique<CudaUnderTest>(); }};
}
INSTANTIATE_TEST_SUITE_P(Cuda, OpsConformance,
                         ::testing::Values(variant(DType::float32), variant(DType::float64), variant(DType::bfloat16),
                                           variant(DType::float16)),
                         name_of_variant);

}  // namespace
}  // namespace echelon
