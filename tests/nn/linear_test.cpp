// The three products of a linear layer in float8: numbers that 8 bits hold give what they give in float64, and
// gradients are rounded to e5m2, the rest to e4m3.
#include "nn/linear.h"
#include "nn/bench.h"
#include "nn/models.h"

#include <gtest/gtest.h>

namespace echelon::test {
namespace {

class RecordingOps final : public ReferenceOps {
 public:
  void perform(const Operation& operation) override {
    const auto* product = operation.get_if<MatmulArgs>();
    if (product != nullptr && product->is_float8()) products.push_back({product->a_format, product->b_format});
    ReferenceOps::perform(operation);
  }
  std::vector<std::pair<OperandFormat, OperandFormat>> products;
};

std::vector<double> whole_numbers(std::int64_t count, int seed) {
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < count; ++i)
    numbers.push_back(static_cast<double>((i * i * 7 + i * 3 + seed) % 17 - 8) / 4);
  return numbers;
}

struct Products {
  std::vector<double> y, dx, dw;
  std::int64_t workspace_bytes = 0;
  std::vector<std::pair<OperandFormat, OperandFormat>> float8;
};

Products products_of(bool is_float8) {
  constexpr std::int64_t tokens = 16, inputs = 32, outputs = 48;
  LayerOptions options = one_rank(small_llama());
  options.is_float8 = is_float8;
  Arena arena(1 << 20);
  Stack memory = arena.region(0, 1 << 19), workspace = arena.region(1 << 19, 1 << 19);
  const auto tensor = [&](Sizes sizes, int seed) {
    const Tensor x = memory.take(DType::float64, sizes);
    set_numbers(x, whole_numbers(x.num_elements(), seed));
    return x;
  };
  Param weight;
  weight.slice = TensorSlice({outputs, inputs});
  weight.value = tensor({outputs, inputs}, 1);
  weight.grad = tensor({outputs, inputs}, 2);
  const Tensor x = tensor({tokens, inputs}, 3), dy = tensor({tokens, outputs}, 4), y = tensor({tokens, outputs}, 5),
               dx = tensor({tokens, inputs}, 6);
  Linear linear(options, weight);
  RecordingOps ops;
  LonelyMesh mesh;
  Context context = {ops, mesh, workspace, {}};
  linear.product(context, x, y);
  linear.backward_input(context, dy, dx);
  linear.weight_backward(context, dy, x);
  EXPECT_EQ(workspace.used_bytes(), 0);
  return {numbers_of(y), numbers_of(dx), numbers_of(weight.grad), workspace.peak_bytes(), ops.products};
}

TEST(Linear, InFloat8) {
  const Products plain = products_of(false), rounded = products_of(true);
  EXPECT_EQ(plain.y, rounded.y);
  EXPECT_EQ(plain.dx, rounded.dx);
  EXPECT_EQ(plain.dw, rounded.dw);
  const auto e4m3 = OperandFormat::float8_e4m3, e5m2 = OperandFormat::float8_e5m2;
  EXPECT_EQ(rounded.float8,
            (std::vector<std::pair<OperandFormat, OperandFormat>>{{e4m3, e4m3}, {e5m2, e4m3}, {e5m2, e4m3}}));
  EXPECT_TRUE(plain.float8.empty());
  EXPECT_EQ(plain.workspace_bytes, 0);
  EXPECT_EQ(rounded.workspace_bytes, 16 * 48 + 48 * 32 + 2 * 256)
      << "of the largest, in bytes: the operands of dx = dy w";
}

}  // namespace
}  // namespace echelon::test
