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
      {"rms_norm", [](Ops& ops) { ops.rms_norm({}); }},
      {"rms_norm_backward_input", [](Ops& ops) { ops.rms_norm_backward_input({}); }},
      {"rms_norm_backward_weight", [](Ops& ops) { ops.rms_norm_backward_weight({}); }},
      {"rope", [](Ops& ops) { ops.rope({}); }},
      {"attention", [](Ops& ops) { ops.attention({}); }},
      {"attention_backward", [](Ops& ops) { ops.attention_backward({}); }},
      {"gelu", [=](Ops& ops) { ops.gelu(x, y); }},
      {"gelu_backward", [=](Ops& ops) { ops.gelu_backward(x, y, z); }},
      {"swiglu", [=](Ops& ops) { ops.swiglu(x, y, z); }},
      {"swiglu_backward", [=](Ops& ops) { ops.swiglu_backward(x, y, z, x, y); }},
      {"row_exp", [](Ops& ops) { ops.row_exp({}); }},
      {"rescale_sums", [](Ops& ops) { ops.rescale_sums({}); }},
      {"cross_entropy", [](Ops& ops) { ops.cross_entropy({}); }},
      {"cross_entropy_backward", [](Ops& ops) { ops.cross_entropy_backward({}); }},
      {"sum_of_squares", [=](Ops& ops) { ops.sum_of_squares(x, y); }},
      {"adamw", [](Ops& ops) { ops.adamw({}); }},
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
  first.swiglu_backward(vector_of(1), vector_of(2), vector_of(3), vector_of(4), vector_of(5));
  run(second, first.heard[0]);
  const auto& args = std::get<SwigluBackwardArgs>(second.heard.at(0));
  EXPECT_EQ((std::vector{args.dgate.size(0), args.dup.size(0), args.dy.size(0), args.gate.size(0), args.up.size(0)}),
            (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
}

// What is added to is read, or the delayed backend would poison it.
TEST(Operation, AProductReadsWhatItAddsTo) {
  const Tensor a = vector_of(1), b = vector_of(2), c = vector_of(3);
  EXPECT_EQ(operands_of(MatmulArgs{.a = a, .b = b, .c = c}).overwrites.size(), 1U);
  EXPECT_TRUE(operands_of(MatmulArgs{.a = a, .b = b, .c = c, .accumulates = true}).overwrites.empty());
}

}  // namespace
}  // namespace echelon
