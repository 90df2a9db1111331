// The works of a step: what every simulated rank's actions take on the machine, on which lane, and with whom.
#pragma once

#include "blueprint/blueprint.h"
#include "predict/step/action_time.h"
#include "predict/step/replicas.h"
#include "predict/step/step_lanes.h"
#include "predict/step/step_parts.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace echelon {

/// It refers to what it is made from. A simulated rank is a stage of a class of replicas: class after class, each by
/// pipeline rank.
class StepWorks {
 public:
  /// Of programs of a kind that trains.
  StepWorks(const Blueprint& blueprint, const SoftwareProfile& profile, const DeviceMap& devices,
            const std::map<int, double>& slow_ranks, ProgramKind kind = ProgramKind::training);
  /// On devices of other rates, without slow ranks: ranks are those of `like`, which may end before this.
  StepWorks(const StepWorks& like, const SoftwareProfile& profile, const DeviceMap& devices);
  StepWorks(const StepWorks&) = delete;
  StepWorks& operator=(const StepWorks&) = delete;

  [[nodiscard]] const StepWork& work() const { return work_; }
  [[nodiscard]] int num_ranks() const { return static_cast<int>(times_.size()); }
  /// Which of the mesh's ranks it is, the first of those that it stands for, and how many these are.
  [[nodiscard]] int mesh_rank(int simulated) const {
    return replicas_.rank_of(simulated / num_stages_, simulated % num_stages_);
  }
  [[nodiscard]] int num_alike(int simulated) const;
  [[nodiscard]] int pipeline_rank(int simulated) const { return simulated % num_stages_; }
  [[nodiscard]] const RankTimes& times(int simulated) const { return times_[static_cast<std::size_t>(simulated)]; }
  /// "compute", "collectives", "to rank 3", "from rank 3": pipeline ranks.
  [[nodiscard]] const std::vector<std::string>& lane_names(int simulated) const {
    return lane_names_[static_cast<std::size_t>(simulated)];
  }
  /// By pipeline rank.
  [[nodiscard]] const std::vector<RankBlueprint>& blueprints() const { return *blueprints_; }

 private:
  void add_ranks(const SoftwareProfile& profile, const DeviceMap& devices, const std::map<int, double>& slow_ranks);
  const std::vector<int>& participants(int simulated, const Group& group);
  void add_works(int simulated, StepLanes& lanes);
  void add_issue(const Action& action, const ActionTime& time, RankWork& own) const;

  const Blueprint& blueprint_;
  ProgramKind kind_;
  int num_stages_;
  HostRules host_;
  Replicas replicas_;
  std::shared_ptr<const std::vector<RankBlueprint>> blueprints_;  // of machines that differ in their rates alone
  std::vector<ActionTimer> timers_;                               // by simulated rank
  StepWork work_;
  std::vector<RankTimes> times_;
  std::vector<std::vector<std::string>> lane_names_;
  std::map<std::pair<int, Group>, std::vector<int>> participants_;
};

}  // namespace echelon
