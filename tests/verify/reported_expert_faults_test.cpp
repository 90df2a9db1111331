// Faults that were reported of mixtures of experts in other systems. Each row has a layout that the fault would change,
// and plants it: without the plant the layout equals one rank, and with it `verify` says that it does not. Those of
// folders are in reported_folder_faults_test.cpp.
#include "spec/groups.h"
#include "verify/mixture_layout.h"
#include "verify/mixture_plants.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

namespace echelon::testing {
namespace {

bool has_experts(const Param* param) { return param != nullptr && param->name.find(".experts.") != std::string::npos; }

/// The norm has the experts of the first tensor-parallel rank alone, though each rank has experts of its own.
class NormOfOneTpRank final : public Plant {
 public:
  bool replaces(Place& place, const Operation& operation) override {
    const auto* args = operation.get_if<SumOfSquaresArgs>();
    return args != nullptr && place.action.kind == ActionKind::clip && place.coordinate(Axis::tp) > 0 &&
           has_experts(place.param_of(args->x));
  }
};

/// The gradient of router losses is not the one of what is reported of them.
class WrongRouterGradient : public Plant {
 public:
  bool replaces(Place& place, const Operation& operation) override {
    const auto* args = operation.get_if<RouterLossesArgs>();
    if (args == nullptr) return false;
    place.ops.perform(operation);
    spoil(place, *args);
    return true;
  }

 private:
  virtual void spoil(Place& place, const RouterLossesArgs& args) = 0;
};

/// Only the first pipeline stage adds it.
class RouterLossOfFirstStage final : public WrongRouterGradient {
  void spoil(Place& place, const RouterLossesArgs& args) override {
    if (place.coordinate(Axis::pp) > 0) place.ops.scale(args.gradient, 0.0);
  }
};

/// It is divided by a number of microbatches that counts those of each context-parallel rank.
class RouterLossByContextRanks final : public WrongRouterGradient {
  void spoil(Place& place, const RouterLossesArgs& args) override {
    place.ops.scale(args.gradient, 1.0 / place.mesh.shape().degree(Axis::cp));
  }
};

/// It is multiplied by the tokens of the rank, and divided by those of whole sequences with all other gradients.
class RouterLossTimesOwnTokens final : public WrongRouterGradient {
  void spoil(Place& place, const RouterLossesArgs& args) override {
    const double all = static_cast<double>(args.counts.size(0)) * args.rule.tokens_per_sequence;
    place.ops.scale(args.gradient, static_cast<double>(args.logits.size(0)) / all);
  }
};

/// The loss of sequences has the tokens of one sequence in place of those of a microbatch.
class SequenceLossOfOneSequence final : public WrongRouterGradient {
  void spoil(Place& place, const RouterLossesArgs& args) override {
    std::vector<double> reported(num_router_losses);
    place.ops.download(reported.data(), args.losses);
    RouterLossesArgs wrong = args;
    wrong.rule.sequence /= static_cast<double>(args.counts.size(0));
    place.ops.router_losses(wrong);
    place.ops.upload(args.losses, reported.data());
  }
};

/// Backward takes another second expert than forward, as a router that chooses again may.
class ChosenAgain final : public Plant {
 public:
  bool replaces(Place& place, const Operation& operation) override {
    const auto* args = operation.get_if<ChooseExpertsBackwardArgs>();
    if (args == nullptr) return false;
    change_second_experts(place.ops, args->experts, args->logits.size(1));
    place.ops.perform(operation);
    return true;
  }
};

/// Rows of several experts of a rank stay in the order of the ranks that they came from.
class RowsByRank final : public Plant {
 public:
  bool replaces(Place& place, const Operation& operation) override {
    const auto* args = operation.get_if<ArrivedSlotsArgs>();
    if (args == nullptr) return false;
    place.ops.perform(operation);
    std::vector<std::int32_t> slots(static_cast<std::size_t>(args->slots.num_elements()));
    for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<std::int32_t>(i);
    place.ops.upload(args->slots, slots.data());
    return true;
  }
};

/// No token chooses the last expert. With the fault, its gradient is what happens to be in memory.
class IdleExpert final : public Plant {
 public:
  explicit IdleExpert(bool has_fault) : has_fault_(has_fault) {}
  bool replaces(Place& place, const Operation& operation) override {
    if (const auto* args = operation.get_if<ChooseExpertsArgs>()) return route(place, operation, args->logits);
    const auto* args = operation.get_if<GroupedMatmulBackwardWeightArgs>();
    if (!has_fault_ || args == nullptr) return false;
    place.ops.perform(operation);
    std::vector<std::int32_t> offsets(static_cast<std::size_t>(args->offsets.num_elements()));
    place.ops.download(offsets.data(), args->offsets);
    for (std::size_t e = 0; e + 1 < offsets.size(); ++e)
      if (offsets[e] == offsets[e + 1]) place.ops.fill(args->dw.rows(static_cast<std::int64_t>(e), 1), 0.5);
    return true;
  }

 private:
  static bool route(Place& place, const Operation& operation, const Tensor& of_tokens) {
    std::vector<double> logits(static_cast<std::size_t>(of_tokens.num_elements()));
    place.ops.download(logits.data(), of_tokens);
    const auto E = static_cast<std::size_t>(of_tokens.size(1));
    for (std::size_t i = E - 1; i < logits.size(); i += E) logits[i] = -50;
    place.ops.upload(of_tokens, logits.data());
    place.ops.perform(operation);
    return true;
  }
  bool has_fault_;
};

template <class P, class... Arguments>
Seed reported(Arguments... arguments) {
  return [=] { return std::make_unique<P>(arguments...); };
}

struct ReportedExpertFault {
  const char* report;
  MixtureLayout layout;
  Seed fault;
  Seed without = {};                              // of both runs, where rows need choices of their own
  std::optional<MixtureLayout> harmless_on = {};  // a layout that the fault does not change
};

std::vector<ReportedExpertFault> reported_expert_faults() {
  const BlockOperations mlp = {BlockOperation::mlp};
  const MixtureLayout ep = {.shard = 4, .ep = 2}, tp_ep = {.shard = 2, .tp = 2, .ep = 2, .sequence_parallel = true};
  const MixtureLayout losses = {.shard = 2, .losses = true};
  return {
      // the norm of gradients lacks experts, or is a mean over ranks with different ones
      {"NVIDIA/Megatron-LM#5916", tp_ep, reported<NormOfOneTpRank>()},
      {"deepspeedai/DeepSpeed#8475", ep, averaged_experts_in_norm(2)},
      // gradients of experts times ep
      {"deepspeedai/DeepSpeed#5259", ep, multiplied_experts(2)},
      // auxiliary losses that depend on cp, tp, the size of microbatches and the schedule
      {"NVIDIA/Megatron-LM#2217", {.losses = true, .cp = 2}, reported<RouterLossByContextRanks>(), {}, losses},
      {"NVIDIA/Megatron-LM#5047",
       {.tp = 2, .sequence_parallel = true, .losses = true},
       reported<RouterLossTimesOwnTokens>(),
       {},
       losses},
      {"NVIDIA/Megatron-LM#5798",
       {.shard = 2, .losses = true, .sequences = 2},
       reported<SequenceLossOfOneSequence>(),
       {},
       losses},
      {"pytorch/torchtitan#2061",
       {.losses = true, .pp = 2, .microbatches = 4, .schedule = PipelineSchedule::zb_v},
       reported<RouterLossOfFirstStage>()},
      // recomputation chooses again, and counts again
      {"pytorch/torchtitan#1117", {.shard = 2, .ep = 2, .recompute = mlp}, reported<ChosenAgain>()},
      {"pytorch/torchtitan#1593", {.shard = 2, .recompute = mlp}, counted_by_recomputation()},
      // several experts of a rank under tp and ep
      {"NVIDIA/Megatron-LM!2824", tp_ep, reported<RowsByRank>()},
      // an expert without a token
      {"NVIDIA/Megatron-LM#1877", ep, reported<IdleExpert>(true), reported<IdleExpert>(false)},
  };
}

void PrintTo(const ReportedExpertFault& fault, std::ostream* out) { *out << fault.report; }

class ReportedExpertFaults : public ::testing::TestWithParam<ReportedExpertFault> {};

TEST_P(ReportedExpertFaults, AreNotHereAndWouldBeFound) {
  const ReportedExpertFault& fault = GetParam();
  const Interpose usual = fault.without ? grow(fault.without) : Interpose();
  const Verdict verdict = verdict_on(fault.layout, usual, usual);
  EXPECT_TRUE(verdict.is_equal()) << verdict.diagnosis->sentence();
  EXPECT_FALSE(verdict_on(fault.layout, grow(fault.fault), usual).is_equal());
  if (!fault.harmless_on) return;
  EXPECT_TRUE(verdict_on(*fault.harmless_on, grow(fault.fault)).is_equal());
}

INSTANTIATE_TEST_SUITE_P(Elsewhere, ReportedExpertFaults, ::testing::ValuesIn(reported_expert_faults()),
                         [](const auto& fault) {
                           std::string name = fault.param.report;
                           std::ranges::replace_if(
                               name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace echelon::testing
