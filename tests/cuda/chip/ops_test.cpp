// Every operation against the reference, over shapes, odd sizes and formats.
#include "cuda/chip/chip.h"
#include "ops/conformance.h"

namespace echelon {
namespace {

/// Tensors are copied to the device and back.
class ChipUnderTest final : public OpsUnderTest {
 public:
  [[nodiscard]] Tensors run(const std::string& /*what*/, const Tensors& tensors,
                            const OperationOnTensors& operation) override {
    Ops& ops = chip::device().ops();
    MemorySpace& memory = chip::device().memory();
    Tensors moved = tensors;
    for (Numbers& numbers : moved) {
      const auto num_bytes = static_cast<std::int64_t>(numbers.bytes().size());
      std::byte* const address = memory.allocate(num_bytes);
      ops.upload({address, DType::bfloat16, {num_bytes / 2}}, numbers.bytes().data());
      numbers.lie_at(address);
    }
    operation(ops, moved);
    for (Numbers& numbers : moved) {
      const auto num_bytes = static_cast<std::int64_t>(numbers.bytes().size());
      std::byte* const address = numbers.tensor().data;
      ops.download(numbers.bytes().data(), {address, DType::bfloat16, {num_bytes / 2}});
      memory.release(address, num_bytes);
      numbers.lie_at(nullptr);
    }
    return moved;
  }
};

OpsVariant chip_variant(DType dtype) {
  return {.dtype = dtype, .make = [] { return std::make_unique<ChipUnderTest>(); }};
}
INSTANTIATE_TEST_SUITE_P(Chip, OpsConformance,
                         testing::Values(chip_variant(DType::float32), chip_variant(DType::float64),
                                         chip_variant(DType::bfloat16), chip_variant(DType::float16)),
                         name_of_variant);

}  // namespace
}  // namespace echelon
