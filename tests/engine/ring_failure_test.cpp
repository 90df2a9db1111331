// A rank that dies or stalls inside a ring ends the run, with its name, the layer and the hop.
#include "base/error.h"
#include "blueprint/small_config.h"
#include "comm/thread/thread_world.h"
#include "data/masked_batches.h"
#include "engine/rank_run.h"
#include "ops/cpu/cpu_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace echelon {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr int cp = 3;

/// What rank 1 does in place of its n-th attention, forward or backward.
struct FaultyAttention {
  OpKind kind{};
  int nth = 0;
  std::function<void()> fault;
};

class FaultyOps : public CpuOps {
 public:
  explicit FaultyOps(const FaultyAttention& faulty) : CpuOps(CpuOptions{}), faulty_(faulty) {}
  void perform(const Operation& operation) override {
    if (operation.kind() == faulty_.kind && num_calls_++ == faulty_.nth) faulty_.fault();
    CpuOps::perform(operation);
  }

 private:
  FaultyAttention faulty_;
  int num_calls_ = 0;
};

/// The sentence that ends a step of a ring of three ranks with two layers.
std::string end_of(const FaultyAttention& faulty, double timeout_seconds) {
  RunConfig config = testing::small_config();
  config.model.num_hidden_layers = 2;
  config.parallelism.context_parallel_degree = cp;
  config.training.global_batch_size = config.training.micro_batch_size;
  const Blueprint blueprint(config);
  const FormulaTokens batches(1, config.model.vocab_size);
  try {
    run_thread_ranks(blueprint.mesh(), {.timeout_seconds = timeout_seconds}, [&](Mesh& mesh) {
      FaultyOps ops(mesh.rank() == 1 ? faulty : FaultyAttention{.kind = faulty.kind, .nth = -1, .fault = {}});
      RankRun run(blueprint, mesh, ops);
      run.model().initialize(1, ops);
      (void)run.step().run(ProgramKind::training, {.batches = &batches, .adamw = {.lr = 1e-3}});
    });
  } catch (const Error& error) {
    return error.what();
  }
  return "nobody noticed";
}

TEST(RingFailure, ARankThatDiesIsNamedWithLayerAndHop) {
  const auto die = [] { throw Failure("the device is gone"); };
  EXPECT_EQ(end_of({OpKind::attention, 2, die}, 60),
            "rank 1: forward stage 0 microbatch 0, model.layers.0.self_attn, hop 2 of the ring: the device is gone");
  EXPECT_EQ(
      end_of({OpKind::attention_backward, 1, die}, 60),
      "rank 1: backward stage 0 microbatch 0 unit 2, model.layers.1.self_attn, hop 1 of the ring: the device is gone");
  // Outside of attention no layer is named.
  EXPECT_EQ(end_of({OpKind::cross_entropy, 0, die}, 60),
            "rank 1: backward stage 0 microbatch 0 unit 3: the device is gone");
}

// Rank 1 stalls in its first attention of layer 1, before it posts the transfers of the next hop. Rank 2 waits for
// them; rank 0, which has the keys of rank 2, is a hop ahead.
TEST(RingFailure, ARankThatStallsIsNamedWithLayerAndHop) {
  const auto stall = [] { std::this_thread::sleep_for(std::chrono::milliseconds(900)); };
  const std::string sentence = end_of({OpKind::attention, cp, stall}, 0.5);
  EXPECT_THAT(sentence, HasSubstr("waited 0.5 s (comm.timeout_seconds) for "));
  EXPECT_THAT(sentence, HasSubstr("rank 1 has not arrived"));
  EXPECT_THAT(sentence, ContainsRegex("is in model.layers.1.self_attn, hop [12] of the ring"));
}

}  // namespace
}  // namespace echelon
