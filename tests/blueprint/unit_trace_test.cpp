// Traces of one kind of unit, in one go and by themselves.
#include "blueprint/unit_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace echelon {
namespace {

/// Preset, tensor-, context- and expert-parallel ranks. In 16 bits on GPUs, where a head that is tied writes its first
/// gradient.
struct Traced {
  const char* preset;
  int tp, cp, ep;
};

RunConfig config_of(const Traced& traced) {
  RunConfig config;
  config.model = preset(traced.preset);
  config.training.dtype = DType::bfloat16;
  config.training.device = DeviceChoice::cuda;
  config.training.seq_len = 256;
  config.training.micro_batch_size = 2;
  config.training.global_batch_size = 32;
  config.parallelism.tensor_parallel_degree = traced.tp;
  config.parallelism.sequence_parallel = traced.tp > 1;
  config.parallelism.context_parallel_degree = traced.cp;
  config.parallelism.expert_parallel_degree = traced.ep;
  config.parallelism.data_parallel_shard_degree = std::max(1, traced.ep / (traced.tp * traced.cp));
  return config;
}

// A search bounds shapes by the passes of a first microbatch, which it traces without the others.
TEST(UnitTrace, OfAFirstMicrobatchAloneIsThatOfAll) {
  using Role = UnitKind::Role;
  int num_without_zeroed_gradients = 0;
  for (const Traced& traced : {Traced{"gpt2-124m", 1, 1, 1}, Traced{"llama3-8b", 4, 2, 1},
                               Traced{"mixtral-8x7b", 2, 1, 8}, Traced{"deepseek-v2-lite", 1, 2, 4}}) {
    const RunConfig config = config_of(traced);
    UnitTraces traces(config);
    std::vector<UnitKind> kinds = {{.role = Role::embedding}, {.role = Role::head}};
    for (const LayerKind& layer : config.model.layer_kinds())
      for (const BlockOperations& recompute : {BlockOperations(), BlockOperations{BlockOperation::core_attn},
                                               BlockOperations{BlockOperation::mlp}, whole_block})
        kinds.push_back({.role = Role::block, .recompute = recompute, .layer = layer});
    for (const UnitKind& kind : kinds) {
      const PassTraces first = traces.first_passes(kind, 0);
      const UnitPasses& all = traces.passes(kind, 0);
      for (std::size_t pass = 0; pass < num_pass_kinds; ++pass) {
        SCOPED_TRACE(fmt::format("{}: {} {}", traced.preset, static_cast<int>(kind.role), pass));
        EXPECT_FALSE(first[pass].events.empty() && kind.role == Role::block);
        EXPECT_EQ(first[pass].events, all.first[pass].events);
        EXPECT_EQ(first[pass].workspace_bytes, all.first[pass].workspace_bytes);
        const auto any = static_cast<PassKind>(pass);
        if (all.of(any, true).events != all.of(any, false).events) ++num_without_zeroed_gradients;
      }
    }
  }
  EXPECT_GT(num_without_zeroed_gradients, 0);
}

/// Of each start, how many waits follow it.
std::vector<int> waits_of(const CallTrace& trace) {
  std::vector<int> waits;
  for (const TraceEvent& event : trace.events)
    if (std::holds_alternative<CommRecord>(event))
      waits.push_back(0);
    else if (const auto* const wait = std::get_if<CommWait>(&event))
      ++waits.at(wait->start);
  return waits;
}

// A ring is recorded once, and copied wherever a pass goes around it again.
TEST(UnitTrace, ACopyOfARingWaitsForItsOwnCommunication) {
  const RunConfig config = config_of({"llama3-8b", 1, 4, 1});
  UnitTraces traces(config);
  const UnitKind plain = {.role = UnitKind::Role::block},
                 again = {.role = UnitKind::Role::block, .recompute = {BlockOperation::core_attn}};
  const auto starts_in = [&](const UnitKind& kind, PassKind pass) {
    const std::vector<int> waits = waits_of(traces.passes(kind, 0).of(pass, true));
    EXPECT_THAT(waits, ::testing::Each(1));
    return waits.size();
  };
  const std::size_t forward = starts_in(plain, PassKind::forward), backward = starts_in(plain, PassKind::backward);
  EXPECT_GE(forward, 12U);  // two tensors are sent and received in three hops
  EXPECT_GT(backward, forward);
  EXPECT_EQ(starts_in(again, PassKind::forward), forward);
  EXPECT_EQ(starts_in(again, PassKind::backward), forward + backward);
  EXPECT_EQ(starts_in(again, PassKind::backward_input), forward + starts_in(plain, PassKind::backward_input));
}

}  // namespace
}  // namespace echelon
