// A rank that dies or stalls inside attention of context parallelism ends the run, with its name, the layer and the hop
// or head.
#include "base/error.h"
#include "comm/thread/thread_world.h"
#include "engine/faulty_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace echelon::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

/// The sentence that ends the step.
std::string end_of(ContextMethod method, const Fault& fault, double timeout_seconds) {
  const Blueprint blueprint(context_config(method));
  try {
    run_thread_ranks(blueprint.mesh(), {.timeout_seconds = timeout_seconds},
                     [&](Mesh& mesh) { run_faulty_step(blueprint, mesh, fault); });
  } catch (const Error& error) {
    return error.what();
  }
  return "nobody noticed";
}

TEST(ContextFailure, ARankThatDiesIsNamedWithLayerAndPart) {
  const auto end_of_death = [](ContextMethod method, OpKind kind, int nth) {
    return end_of(method, {kind, nth, [] { throw Failure("the device is gone"); }}, 60);
  };
  const std::string forward = "rank 1: forward stage 0 microbatch 0, model.layers.",
                    backward = "rank 1: backward stage 0 microbatch 0 unit 2, model.layers.",
                    reason = ": the device is gone";
  EXPECT_EQ(end_of_death(ContextMethod::ring, OpKind::attention, 2),
            forward + "0.self_attn, hop 2 of the ring" + reason);
  EXPECT_EQ(end_of_death(ContextMethod::ring, OpKind::attention_backward, 1),
            backward + "1.self_attn, hop 1 of the ring" + reason);
  EXPECT_EQ(end_of_death(ContextMethod::all_gather, OpKind::attention, 5), forward + "1.self_attn, kv head 1" + reason);
  EXPECT_EQ(end_of_death(ContextMethod::all_gather, OpKind::attention_backward, 3),
            backward + "1.self_attn, kv head 3" + reason);
  EXPECT_EQ(end_of_death(ContextMethod::ulysses, OpKind::attention, 1), forward + "1.self_attn" + reason);
  EXPECT_EQ(end_of_death(ContextMethod::ulysses_ring, OpKind::attention, 3),
            forward + "1.self_attn, hop 1 of the ring" + reason);
  // Outside of attention no layer is named.
  EXPECT_EQ(end_of_death(ContextMethod::ring, OpKind::cross_entropy, 0),
            "rank 1: backward stage 0 microbatch 0 unit 3" + reason);
}

// Rank 1 stalls in its first attention of layer 1, before it starts what others need next: in a ring the transfers of
// hop 1, which rank 2 waits for, while rank 0, which has the keys of rank 2, is a hop ahead; of gathered keys those of
// head 2; else the exchange back.
TEST(ContextFailure, ARankThatStallsIsNamedWithLayerAndPart) {
  const auto stall = [] { std::this_thread::sleep_for(std::chrono::milliseconds(900)); };
  struct Row {
    ContextMethod method{};
    const char* place = nullptr;
  };
  for (const Row& row : {Row{ContextMethod::ring, "hop [12] of the ring"},
                         {ContextMethod::all_gather, "kv head 2"},
                         {ContextMethod::ulysses, "exchange of heads for tokens"},
                         {ContextMethod::ulysses_ring, "exchange of heads for tokens"}}) {
    const std::string sentence = end_of(row.method, {OpKind::attention, first_of_layer_1(row.method), stall}, 0.5);
    EXPECT_THAT(sentence, HasSubstr("waited 0.5 s (comm.timeout_seconds) for "));
    EXPECT_THAT(sentence, ContainsRegex("rank 1 has not arrived|ranks [0-9, ]*1[0-9, ]* have not arrived"));
    EXPECT_THAT(sentence, ContainsRegex(std::string("is in model.layers.1.self_attn, ") + row.place));
  }
}

}  // namespace
}  // namespace echelon::testing
