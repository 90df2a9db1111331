// The stages of a pipeline as the bounds of a search read them: what a pass of each takes and what it keeps. No data
// axes.
#pragma once

#include "plan/bounds/compact_schedule.h"
#include "plan/bounds/pass_states.h"

#include <array>
#include <list>
#include <map>
#include <memory>
#include <tuple>

namespace echelon {

/// A layout without its data axes. It refers to its parts, which are never copied: a search asks a million times.
struct PlanComputation {
  const PlanShape& shape;
  const PlanPipeline& pipeline;
  const PlanRecompute& recompute;
};

struct StageCost {
  std::array<double, num_pass_kinds> seconds = {}, core_seconds = {};
  std::array<std::int64_t, num_pass_kinds> workspace_bytes = {};
  std::int64_t stash_bytes = 0, input_stash_bytes = 0, gradient_stash_bytes = 0, flow_bytes = 0;
  std::int64_t num_blocks = 0, num_mixtures = 0, num_units = 0;  // mixtures: blocks with experts
  // Of the blocks alone: the first one, the last one, and the fastest of them in each pass; null without blocks.
  const UnitCost *first_block = nullptr, *last_block = nullptr;
  std::array<double, num_pass_kinds> block_seconds = {}, least_block_seconds = {};
  int rank = 0;

  void add(const UnitCost& unit, std::int64_t count);
};

/// Of which a table keeps what it found: those that were asked for last.
inline constexpr std::size_t num_known_stages = 6;

/// What of stages does not depend on what they cost.
struct StageRanks {
  const std::vector<StageLayers>* stages = nullptr;
  std::vector<std::size_t> firsts = {};  // of each kind of stages, which have the same units, the first stage
  std::vector<std::size_t> kinds = {};   // by stage
  std::vector<int> ranks = {};           // by stage
  std::vector<std::int64_t> blocks_of_rank = {}, mixtures_of_rank = {};
  /// Ranks with as many stages of each kind and the same ends of the model have the same bytes; the first of them.
  struct RankKind {
    int rank = 0;
    bool is_first = false, is_last = false;     // of the pipeline
    std::vector<std::int64_t> num_stages = {};  // of each kind
    bool operator==(const RankKind& other) const {
      return is_first == other.is_first && is_last == other.is_last && num_stages == other.num_stages;
    }
  };
  std::vector<RankKind> rank_kinds = {};
};

/// The stages of a computation, by their kinds: of tens of stages three or four kinds.
struct StageKinds {
  const StageRanks& of;
  const std::vector<StageCost>& costs;  // by kind; their rank is not set
};

struct PlanStages {
  std::vector<StageCost> stages;
  std::vector<std::int64_t> blocks_of_rank, mixtures_of_rank;
  BackwardKinds backward_kinds{};
  std::int64_t number = 0;  // of those that were asked for: what is derived from them can be kept by it
};

[[nodiscard]] Recompute recompute_of(const PlanRecompute& recompute);

/// The ways in which a whole backward pass can be had, and in which the gradient of a stage's input can be.
[[nodiscard]] double least_backward(const std::array<double, num_pass_kinds>& seconds, BackwardKinds kinds);
[[nodiscard]] double least_backward_input(const std::array<double, num_pass_kinds>& seconds, BackwardKinds kinds);

/// By rank: the end of its last pass at least, without a clock.
[[nodiscard]] std::vector<double> unplayed_ends(const PlanComputation& computation, const PlanStages& stages);
/// Of the rank that ends last.
[[nodiscard]] double last_unplayed_end(const PlanComputation& computation, const StageKinds& stages);

/// Until the first microbatch reaches a rank, on average over so many of a pipeline, whichever it is: it goes through a
/// block at least of each rank before, but for the first one, which may have the embedding alone.
[[nodiscard]] constexpr double mean_fill_seconds(std::int64_t num_ranks, double block_forward_seconds) {
  const auto p = static_cast<double>(num_ranks);
  return (p - 1) * (p - 2) / 2 / p * block_forward_seconds;
}

/// Of all cores of a host for one rank of every stage.
[[nodiscard]] double core_seconds(const PlanComputation& computation, const PlanStages& stages);

/// Passes of a stage in a step, as gathers under ZeRO-3 see them.
struct StagePasses {
  // Those that follow another pass of the stage on their rank find its last block gathered.
  double all = 0, behind_own = 0;
  double openings = 0, open_behind_own = 0;  // those before which no microbatch waits for its backward pass
};
[[nodiscard]] std::vector<StagePasses> passes_of_stages(const CompactSchedule& schedule);

struct KnownSchedule {
  CompactSchedule schedule;
  std::vector<StagePasses> passes;
  std::vector<RankStates> states;
};
/// By its kind, pipeline ranks, virtual stages and microbatches. Other numbers of devices have the same.
using KnownSchedules = std::map<std::tuple<PipelineSchedule, std::int64_t, std::int64_t, std::int64_t>, KnownSchedule>;

/// Memoised; not thread-safe.
class PlanStageTable {
 public:
  /// `known`: of requests that differ in the number of devices or in what they fix; null: of this one.
  PlanStageTable(const PlanSpace& space, KnownSchedules* known)
      : space_(&space), schedules_(known != nullptr ? known : &own_schedules_) {}
  PlanStageTable(const PlanStageTable&) = delete;
  PlanStageTable& operator=(const PlanStageTable&) = delete;

  /// Until `num_known_stages` others are asked for: a search asks for those of a computation one time after the other.
  /// `layers` are those of its recomputation.
  [[nodiscard]] const PlanStages& stages(const PlanComputation& computation, const LayerCosts& layers);
  [[nodiscard]] const StageRanks& ranks(const PlanComputation& computation, const ModelSpec& model);
  /// As stages(), until others are asked for. Much faster where a search asks for stages that it never looks at again.
  [[nodiscard]] StageKinds kinds(const PlanComputation& computation, const LayerCosts& layers);
  [[nodiscard]] const CompactSchedule& schedule(const PlanShape& shape, const PlanPipeline& pipeline) {
    return known(shape, pipeline).schedule;
  }
  [[nodiscard]] const std::vector<StagePasses>& passes(const PlanShape& shape, const PlanPipeline& pipeline) {
    return known(shape, pipeline).passes;
  }
  /// Of kinds of stages that have the same units.
  [[nodiscard]] const std::vector<RankStates>& states(const PlanShape& shape, const PlanPipeline& pipeline,
                                                      const ModelSpec& model);

 private:
  [[nodiscard]] const KnownSchedule& known(const PlanShape& shape, const PlanPipeline& pipeline);

  const PlanSpace* space_;
  KnownSchedules own_schedules_;
  KnownSchedules* schedules_;
  struct KnownStages {
    PlanShape shape = {};
    PlanPipeline pipeline = {};
    PlanRecompute recompute = {};
    const LayerCosts* layers = nullptr;
    PlanStages stages = {};
    [[nodiscard]] bool are_of(const PlanComputation& other) const {
      return recompute == other.recompute && shape == other.shape && pipeline == other.pipeline;
    }
  };
  void make(const PlanComputation& computation, const LayerCosts& layers, PlanStages& made);
  /// By stage: the first one with the same units.
  [[nodiscard]] const std::vector<std::size_t>& first_equals(const std::vector<StageLayers>& stages,
                                                             const ModelSpec& model);
  std::map<const std::vector<StageLayers>*, std::vector<std::size_t>> first_equals_;  // by the stages of the space
  /// By the schedule, and by the stages of the space.
  std::map<std::pair<const KnownSchedule*, const std::vector<StageLayers>*>, std::vector<RankStates>> states_;
  std::list<KnownStages> known_stages_;  // those that were used last come first
  std::int64_t num_made_ = 0;
  /// By the stages of the space, pipeline ranks and whether stages loop over them.
  std::map<std::tuple<const std::vector<StageLayers>*, std::int64_t, Placement>, StageRanks> ranks_;
  /// Schedules with the same stages ask for the same ones.
  struct KnownKinds {
    const StageRanks* of = nullptr;
    const LayerCosts* layers = nullptr;
    PlanRecompute recompute = {};
    std::vector<StageCost> costs = {};
  };
  std::array<KnownKinds, 256> kinds_;  // by what they are of; one replaces another one
};

}  // namespace echelon
