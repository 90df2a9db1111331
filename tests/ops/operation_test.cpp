// The list of operations: calls, kinds, descriptions and samples that are declared from it belong together.
#include "ops/description.h"
#include "ops/reference/reference_ops.h"
#include "ops/sample.h"
#include "ops/stored_operation.h"
#include "ops/trace/trace_ops.h"
#include "tensor/arena.h"

#include <gtest/gtest.h>

#include <vector>

namespace echelon {
namespace {

/// Keeps a copy of each operation, and where its arguments were.
class Listener final : public Ops {
 public:
  void perform(const Operation& operation) override {
    heard.push_back(stored(operation));
    addresses.push_back(operation.visit([](const auto& args) { return static_cast<const void*>(&args); }));
  }
  void upload(Tensor, const void*) override {}
  void download(void*, Tensor) override {}
  void publish() override {}

  std::vector<StoredOperation> heard;
  std::vector<const void*> addresses;
};

Tensor vector_of(std::int64_t size) { return {nullptr, DType::float32, {size}}; }

TEST(Operation, ACallRefersToItsArgumentsAndHasTheKindOfItsName){
#define ECHELON_TEST_CALL(call, Args)                         \
  {                                                           \
    Listener ops;                                             \
    const Args args;                                          \
    ops.call(args);                                           \
    ASSERT_EQ(ops.heard.size(), 1U);                          \
    EXPECT_EQ(name_of(kind_of(ops.heard[0])), #call);         \
    EXPECT_TRUE(std::holds_alternative<Args>(ops.heard[0]));  \
    EXPECT_EQ(ops.addresses[0], &args) << #call << " copied"; \
  }
    ECHELON_OPERATIONS(ECHELON_TEST_CALL)
#undef ECHELON_TEST_CALL
}

TEST(Operation, IsNoOperationOfAnotherKind) {
  const MatmulArgs args;
  const Operation operation = args;
  EXPECT_EQ(operation.get_if<MatmulArgs>(), &args);
  EXPECT_EQ(operation.get_if<AddArgs>(), nullptr);
  EXPECT_TRUE(multiplies_matrices(operation.kind()));
  EXPECT_FALSE(multiplies_matrices(OpKind::add));
}

TEST(Operation, ShortFormsKeepTheOrderOfTensors) {
  Listener ops;
  ops.add(vector_of(1), vector_of(2), vector_of(3));
  ops.fill(vector_of(4), 0.5);
  const auto& sum = std::get<AddArgs>(ops.heard.at(0));
  EXPECT_EQ((std::vector{sum.out.size(0), sum.a.size(0), sum.b.size(0)}), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(std::get<FillArgs>(ops.heard.at(1)).value, 0.5);
}

TEST(Operation, AStoredOneIsPerformedAsItWas) {
  Listener first, second;
  RopeArgs rotation;
  rotation.x = vector_of(3);
  rotation.inverse = true;
  first.rope(rotation);
  perform(second, first.heard[0]);
  const auto& args = std::get<RopeArgs>(second.heard.at(0));
  EXPECT_TRUE(args.inverse);
  EXPECT_EQ(args.x.size(0), 3);
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

TEST(Samples, RunInEveryFormat) {
  const Arena arena(1 << 20);
  ReferenceOps ops;
  for_each_curve([&](OpKind kind, bool is_weight_gradient) {
    for (const DType dtype : {DType::float32, DType::float64}) {
      Stack memory = arena.region(0, arena.num_bytes());
      const Sample sample = sample_operation({kind, dtype, 6, 8, 4, is_weight_gradient}, memory);
      EXPECT_NO_THROW(sample.run(ops)) << curve_name(kind, is_weight_gradient) << " in " << name_of(dtype);
      EXPECT_GT(sample.cost.bytes, 0) << curve_name(kind, is_weight_gradient);
    }
  });
}

// The points of a machine file are found by the sizes of an operation's cost.
TEST(Samples, CostWhatTheirSizesSay) {
  int num_timed = 0;
  for_each_curve([&](OpKind kind, bool is_weight_gradient) {
    const SampleSizes usual = usual_sizes(kind);
    if (usual.m.empty()) return;
    ++num_timed;
    Stack measure;
    const OpCost cost =
        sample_operation({kind, DType::float32, usual.m[0], usual.n[0], usual.k[0], is_weight_gradient}, measure).cost;
    EXPECT_EQ((std::vector{cost.m, cost.n, cost.k}), (std::vector{usual.m[0], usual.n[0], usual.k[0]}))
        << curve_name(kind, is_weight_gradient);
  });
  // Seven are of mixtures, four of context parallelism, three of latents, one is three flops.
  EXPECT_EQ(num_timed, num_op_kinds - 15 + 1);
}

TEST(Samples, OfAMatmulAreWeightGradientsIfThatIsAskedFor) {
  TraceOps ops;
  for (const bool is_weight_gradient : {false, true}) {
    Stack measure;
    sample_operation({OpKind::matmul, DType::bfloat16, 6, 8, 4, is_weight_gradient}, measure).run(ops);
    EXPECT_EQ(ops.records().back().is_weight_gradient, is_weight_gradient);
  }
}

}  // namespace
}  // namespace echelon
