// Every method of Ops arrives as an Operation of its own kind, and running that Operation calls the same method again.
#include "ops/operation.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace echelon {
namespace {

class Listener final : public UniformOps {
 public:
  void perform(const Operation& operation) override { heard.push_back(operation); }
  void publish() override {}
  std::vector<Operation> heard;
};

Tensor vector_of(std::int64_t size) { return {nullptr, DType::float32, {size}}; }

/// One call of every method, by the method's name.
std::vector<std::pair<std::string, std::function<void(Ops&)>>> every_method() {
  const Tensor x = vector_of(1), y = vector_of(2), z = vector_of(3);
  return {
      {"matmul", [](Ops& ops) { ops.matmul({}); }},
      {"add_bias", [=](Ops& ops) { ops.add_bias(x, y); }},
      {"bias_backward", [=](Ops& ops) { ops.bias_backward(x, y); }},
      {"add", [=](Ops& ops) { ops.add(x, y, z); }},
      {"copy", [=](Ops& ops) { ops.copy(x, y); }},
      {"fill", [=](Ops& ops) { ops.fill(x, 2.0); }},
      {"scale", [=](Ops& ops) { ops.scale(x, 2.0); }},
      {"embedding", [](Ops& ops) { ops.embedding({}); }},
      {"embedding_backward", [](Ops& ops) { ops.embedding_backward({}); }},
      {"add_positions", [](Ops& ops) { ops.add_positions({}); }},
      {"positions_backward", [](Ops& ops) { ops.positions_backward({}); }},
      {"layer_norm", [](Ops& ops) { ops.layer_norm({}); }},
      {"layer_norm_backward_input", [](Ops& ops) { ops.layer_norm_backward_input({}); }},
      {"layer_norm_backward_weight", [](Ops& ops) { ops.layer_norm_backward_weight({}); }},
      {"layer_norm_backward", [](Ops& ops) { ops.layer_norm_backward({}); }},
      {"rms_norm", [](Ops& ops) { ops.rms_norm({}); }},
      {"rms_norm_backward_input", [](Ops& ops) { ops.rms_norm_backward_input({}); }},
      {"rms_norm_backward_weight", [](Ops& ops) { ops.rms_norm_backward_weight({}); }},
      {"rms_norm_backward", [](Ops& ops) { ops.rms_norm_backward({}); }},
      {"rope", [](Ops& ops) { ops.rope({}); }},
      {"attention", [](Ops& ops) { ops.attention({}); }},
      {"attention_backward", [](Ops& ops) { ops.attention_backward({}); }},
      {"merge_attention", [](Ops& ops) { ops.merge_attention({}); }},
      {"gelu", [](Ops& ops) { ops.gelu({}); }},
      {"gelu_backward", [](Ops& ops) { ops.gelu_backward({}); }},
      {"swiglu", [](Ops& ops) { ops.swiglu({}); }},
      {"swiglu_backward", [](Ops& ops) { ops.swiglu_backward({}); }},
      {"row_exp", [](Ops& ops) { ops.row_exp({}); }},
      {"rescale_sums", [](Ops& ops) { ops.rescale_sums({}); }},
      {"cross_entropy", [](Ops& ops) { ops.cross_entropy({}); }},
      {"cross_entropy_backward", [](Ops& ops) { ops.cross_entropy_backward({}); }},
      {"sum_of_squares", [=](Ops& ops) { ops.sum_of_squares(x, y); }},
      {"gradient_factor", [](Ops& ops) { ops.gradient_factor({}); }},
      {"adamw", [](Ops& ops) { ops.adamw({}); }},
      {"expert_slots", [](Ops& ops) { ops.expert_slots({}); }},
      {"permute_to_experts", [](Ops& ops) { ops.permute_to_experts({}); }},
      {"combine_experts", [](Ops& ops) { ops.combine_experts({}); }},
      {"combine_experts_backward", [](Ops& ops) { ops.combine_experts_backward({}); }},
      {"grouped_matmul", [](Ops& ops) { ops.grouped_matmul({}); }},
      {"grouped_matmul_backward_weight", [](Ops& ops) { ops.grouped_matmul_backward_weight({}); }},
      {"upload", [=](Ops& ops) { ops.upload(x, nullptr); }},
      {"download", [=](Ops& ops) { ops.download(nullptr, x); }},
  };
}

TEST(Operation, EveryMethodHasAKindOfItsOwnAndRunsAsItself) {
  ASSERT_EQ(every_method().size(), std::variant_size_v<Operation>);
  for (const auto& [name, call] : every_method()) {
    Listener first, second;
    call(first);
    ASSERT_EQ(first.heard.size(), 1U) << name;
    EXPECT_EQ(name_of(kind_of(first.heard[0])), name);
    run(second, first.heard[0]);
    ASSERT_EQ(second.heard.size(), 1U) << name;
    EXPECT_EQ(name_of(kind_of(second.heard[0])), name);
  }
}

TEST(Operation, KeepsTheOrderOfTensors) {
  Listener first, second;
  first.add(vector_of(1), vector_of(2), vector_of(3));
  run(second, first.heard[0]);
  const auto& args = std::get<AddArgs>(second.heard.at(0));
  EXPECT_EQ((std::vector{args.out.size(0), args.a.size(0), args.b.size(0)}), (std::vector<std::int64_t>{1, 2, 3}));
}

// A tensor that was left out has no memory to look at.
TEST(Operation, ArgumentsThatWereLeftOutAreNoOperands) {
  const Tensor x = vector_of(4);
  EXPECT_EQ(operands_of(GeluArgs{.x = x, .y = x}).reads.size(), 1U);
  EXPECT_EQ(operands_of(GeluArgs{.x = x, .y = x, .bias = x}).reads.size(), 2U);
  const Operands gradients = operands_of(GeluBackwardArgs{.dy = x, .x = x, .dx = x});
  EXPECT_EQ(gradients.reads.size() + gradients.overwrites.size(), 3U);
  EXPECT_EQ(cost(GeluBackwardArgs{.dy = x, .x = x, .dx = x}).bytes, 3 * 16);
  EXPECT_EQ(cost(GeluBackwardArgs{.dy = x, .x = x, .dx = x, .bias = x, .dbias = x, .y = x}).bytes, 7 * 16);
}

// What is added to is read, or the delayed backend would poison it.
TEST(Operation, AProductReadsWhatItAddsTo) {
  const Tensor a = vector_of(1), b = vector_of(2), c = vector_of(3);
  EXPECT_EQ(operands_of(MatmulArgs{.a = a, .b = b, .c = c}).overwrites.size(), 1U);
  EXPECT_TRUE(operands_of(MatmulArgs{.a = a, .b = b, .c = c, .accumulates = true}).overwrites.empty());
}

}  // namespace
}  // namespace echelon
