// The time of a step of thread ranks as if each had a core: CPU seconds of a rank from one collective to the next, of
// these the largest of any rank, and their sum. Medians over steps.
#pragma once

#include "base/clock.h"
#include "base/median.h"
#include "comm/timed/timed_mesh.h"
#include "engine/layout_run.h"
#include "ops/forwarding_ops.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace echelon {

/// CPU seconds of a rank: of each part of a step, which ends with a collective, and of its experts.
struct RankStep {
  std::vector<double> parts;
  double experts = 0;
};

template <class... Args>
bool is_one_of(const Operation& operation) {
  return ((operation.get_if<Args>() != nullptr) || ...);
}

inline bool is_of_experts(const Operation& operation) {
  return is_one_of<GroupedMatmulArgs, GroupedMatmulBackwardWeightArgs, SwigluArgs, SwigluBackwardArgs, WeightRowsArgs,
                   WeightRowsBackwardArgs, ArrivedSlotsArgs, PermuteToExpertsArgs, CombineExpertsArgs>(operation);
}

class PlainRank final : public RankInterposer {
 public:
  PlainRank(Ops& ops, Mesh& mesh) : ops_(ops), mesh_(mesh) {}
  [[nodiscard]] Ops& ops() override { return ops_; }
  [[nodiscard]] Mesh& mesh() override { return mesh_; }

 private:
  Ops& ops_;
  Mesh& mesh_;
};

class TimedRank final : public RankInterposer, public ForwardingOps {
 public:
  TimedRank(std::unique_ptr<RankInterposer> forced, Mesh& mesh)
      : ForwardingOps(forced->ops()), forced_(std::move(forced)), mesh_(mesh, [this](const TimedCall& call) {
          if (call.phase == TimedCall::Phase::wait) end_part();
        }) {}
  [[nodiscard]] Ops& ops() override { return *this; }
  [[nodiscard]] Mesh& mesh() override { return mesh_; }

  void perform(const Operation& operation) override {
    const double start = thread_seconds();
    inner().perform(operation);
    if (is_of_experts(operation)) step_.experts += thread_seconds() - start;
  }

  RankStep end_step() {
    end_part();
    return std::exchange(step_, {});
  }

 private:
  void end_part() {
    const double now = thread_seconds();
    step_.parts.push_back(now - start_);
    start_ = now;
  }

  std::unique_ptr<RankInterposer> forced_;
  RankStep step_;
  double start_ = 0;
  TimedMesh mesh_;
};

class StepsOfRanks final : public RunObserver {
 public:
  explicit StepsOfRanks(int num_ranks) : steps(static_cast<std::size_t>(num_ranks)) {}
  void ended_step(const RankView& rank, std::int64_t step, const StepResult& /*result*/) override {
    RankStep ended = dynamic_cast<TimedRank&>(rank.ops).end_step();
    if (step > 1) steps.at(static_cast<std::size_t>(rank.mesh.rank())).push_back(std::move(ended));
  }
  std::vector<std::vector<RankStep>> steps;
};

/// Each step is as long as the slowest rank in each of its parts.
inline double seconds_of(const std::vector<std::vector<RankStep>>& steps) {
  double seconds = 0;
  for (std::size_t part = 0; part < steps.front().front().parts.size(); ++part) {
    double slowest = 0;
    for (const std::vector<RankStep>& of_rank : steps) {
      std::vector<double> of_steps;
      for (const RankStep& step : of_rank) of_steps.push_back(step.parts.at(part));
      slowest = std::max(slowest, median(std::move(of_steps)));
    }
    seconds += slowest;
  }
  return seconds;
}

inline double expert_seconds_of(const std::vector<std::vector<RankStep>>& steps) {
  double sum = 0;
  for (const std::vector<RankStep>& of_rank : steps) {
    std::vector<double> of_steps;
    for (const RankStep& step : of_rank) of_steps.push_back(step.experts);
    sum += median(std::move(of_steps));
  }
  return sum / static_cast<double>(steps.size());
}

}  // namespace echelon
