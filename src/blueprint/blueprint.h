// Everything about a run that is known before a number is computed: the mesh, who owns which parameters, every rank's
// program, what every action computes and sends, and the address of every buffer. Engine, simulator and drawings read
// the same blueprint.
#pragma once

#include "blueprint/memory_plan.h"
#include "blueprint/rank_trace.h"
#include "schedule/lowering/lower.h"
#include "spec/config/run_config.h"

#include <vector>

namespace echelon {

enum class ProgramKind : std::uint8_t {
  training,
  evaluation,
  training_with_snapshot,  // of the state before the step, of which a checkpoint is written meanwhile
};
inline constexpr std::size_t num_program_kinds = 3;
[[nodiscard]] constexpr bool is_training(ProgramKind kind) { return kind != ProgramKind::evaluation; }

class Blueprint;

/// One rank's share of the blueprint.
class RankBlueprint {
 public:
  RankBlueprint(const Blueprint& blueprint, int rank, UnitTraces& units);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] const ModelPart& part() const { return part_; }
  [[nodiscard]] const Program& program(ProgramKind kind) const { return *programs_[static_cast<std::size_t>(kind)]; }
  [[nodiscard]] const MemoryPlan& memory(ProgramKind kind) const { return memory_[static_cast<std::size_t>(kind)]; }
  /// The size of the rank's one allocation: all programs' persistent buffers are the same and come first.
  [[nodiscard]] std::int64_t arena_bytes() const;
  /// Of host memory, where the rank computes in another: what of a snapshot is copied there.
  [[nodiscard]] const MemoryPlan& host_memory() const { return host_memory_; }
  [[nodiscard]] const RankTrace& trace(ProgramKind kind) const { return traces_[static_cast<std::size_t>(kind)]; }

 private:
  int rank_;
  // Of the kinds of programs that the blueprint has.
  std::vector<const Program*> programs_;
  ModelPart part_;
  std::vector<RankTrace> traces_;
  std::vector<MemoryPlan> memory_;
  MemoryPlan host_memory_;
};

class Blueprint {
 public:
  /// Throws Error for a config that contradicts itself or a layout that does not divide the model.
  explicit Blueprint(const RunConfig& config);
  /// The same with a schedule of one's own in place of the one that the config names.
  Blueprint(RunConfig config, Schedule schedule);

  [[nodiscard]] const RunConfig& config() const { return config_; }
  [[nodiscard]] const MeshShape& mesh() const { return mesh_; }
  [[nodiscard]] const Schedule& schedule() const { return schedule_; }
  /// The kinds of programs that ranks run: snapshots are taken only where training continues meanwhile.
  [[nodiscard]] std::vector<ProgramKind> program_kinds() const;
  [[nodiscard]] const LoweringOptions& lowering(ProgramKind kind) const {
    return lowering_[static_cast<std::size_t>(kind)];
  }
  /// One program per pipeline rank.
  [[nodiscard]] const std::vector<Program>& programs(ProgramKind kind) const {
    return programs_[static_cast<std::size_t>(kind)];
  }
  /// It refers to this blueprint's programs.
  [[nodiscard]] RankBlueprint rank(int rank) const& {
    UnitTraces units(config_);
    return {*this, rank, units};
  }
  /// The same from traces that several ranks share: `units` are those of config().
  [[nodiscard]] RankBlueprint rank(int rank, UnitTraces& units) const& { return {*this, rank, units}; }
  RankBlueprint rank(int rank) const&& = delete;
  /// By pipeline rank: the first rank of its other axes.
  [[nodiscard]] std::vector<RankBlueprint> pipeline_ranks() const&;
  std::vector<RankBlueprint> pipeline_ranks() const&& = delete;

 private:
  RunConfig config_;
  MeshShape mesh_;
  Schedule schedule_;
  std::array<LoweringOptions, num_program_kinds> lowering_;
  std::array<std::vector<Program>, num_program_kinds> programs_;
};

/// How a config's programs are lowered whose stages have these shapes and are on these pipeline ranks. Throws Error for
/// a tied weight that is not on the ends of the pipeline.
[[nodiscard]] LoweringOptions lowering_options(const RunConfig& config, const std::vector<int>& rank_of_stage,
                                               std::vector<StageShape> stages);

}  // namespace echelon
