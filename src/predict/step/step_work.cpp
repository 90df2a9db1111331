#include "predict/step/step_work.h"

#include "schedule/timeline.h"
#include "spec/groups.h"

#include <algorithm>
#include <set>

namespace echelon {
namespace {

/// Where a collective takes place; that of no axis if it sends nothing.
Group group_of(const ActionTime& collective) {
  return collective.communication_seconds.empty() ? Group() : collective.communication_seconds.begin()->first;
}

}  // namespace

/// The simulated ranks that take part, ascending. A class with several replicas counts once.
const std::vector<int>& StepWorks::participants(int simulated, const Group& group) {
  const auto [known, is_new] = participants_.try_emplace({simulated, group});
  if (!is_new) return known->second;
  const MeshShape& mesh = blueprint_.mesh();
  std::set<int> there;
  if (replicas_.num_classes() == 1 && !group.axes.contains(Axis::pp))
    there.insert(simulated);
  else
    for (const int rank : mesh.ranks_of(group, mesh_rank(simulated)))
      there.insert(replicas_.class_of_rank(rank) * num_stages_ + mesh.coordinate(rank, Axis::pp));
  known->second.assign(there.begin(), there.end());
  return known->second;
}

StepWorks::StepWorks(const Blueprint& blueprint, const SoftwareProfile& profile, const DeviceMap& devices,
                     const std::map<int, double>& slow_ranks, ProgramKind kind)
    : blueprint_(blueprint),
      kind_(kind),
      num_stages_(blueprint.mesh().degree(Axis::pp)),
      host_(profile.host),
      replicas_(devices, slow_ranks, ContextRanks(blueprint.config()).busiest()) {
  UnitTraces units(blueprint.config());
  std::vector<RankBlueprint> ranks;
  for (int stage = 0; stage < num_stages_; ++stage) ranks.push_back(blueprint.rank(replicas_.rank_of(0, stage), units));
  blueprints_ = std::make_shared<const std::vector<RankBlueprint>>(std::move(ranks));
  add_ranks(profile, devices, slow_ranks);
}

StepWorks::StepWorks(const StepWorks& like, const SoftwareProfile& profile, const DeviceMap& devices)
    : blueprint_(like.blueprint_),
      kind_(like.kind_),
      num_stages_(like.num_stages_),
      host_(profile.host),
      replicas_(devices, {}, ContextRanks(blueprint_.config()).busiest()),
      blueprints_(like.blueprints_) {
  add_ranks(profile, devices, {});
}

void StepWorks::add_ranks(const SoftwareProfile& profile, const DeviceMap& devices,
                          const std::map<int, double>& slow_ranks) {
  const int num_simulated = num_stages_ * replicas_.num_classes();
  for (int simulated = 0; simulated < num_simulated; ++simulated)
    timers_.emplace_back(blueprint_.config(), profile, devices, slow_ranks, mesh_rank(simulated));
  work_.slowdown_by_collectives = profile.overlap.slowdown_by_collectives;
  work_.slowdown_by_transfers = profile.overlap.slowdown_by_transfers;
  work_.ranks.resize(static_cast<std::size_t>(num_simulated));
  StepLanes lanes(work_, profile.overlap);
  for (int simulated = 0; simulated < num_simulated; ++simulated) add_works(simulated, lanes);
}

int StepWorks::num_alike(int simulated) const {
  const MeshShape& mesh = blueprint_.mesh();
  return replicas_.size_of(simulated / num_stages_) * mesh.degree(Axis::cp) * mesh.degree(Axis::tp);
}

void StepWorks::add_issue(const Action& action, const ActionTime& time, RankWork& own) const {
  Work& work = own.works.back();
  work.issue = time.issue;
  const bool is_in_parts = host_.copies_parts && work.lane == collective_lane;
  work.holds_host = is_in_parts || (host_.waits_for_kernels && !work.is_hidden);
  work.starts_in_step = is_in_parts || (host_.waits_for_transfers &&
                                        std::any_of(action.after.begin(), action.after.end(), [&](int before) {
                                          return is_receive((*own.program)[static_cast<std::size_t>(before)].kind);
                                        }));
}

void StepWorks::add_works(int simulated, StepLanes& lanes) {
  const RankBlueprint& rank = (*blueprints_)[static_cast<std::size_t>(pipeline_rank(simulated))];
  RankWork& own = work_.ranks[static_cast<std::size_t>(simulated)];
  own.program = &rank.program(kind_);
  RankTimes& times = times_.emplace_back(RankTimes{.work = &own});
  lanes.start(simulated, simulated / num_stages_);
  for (const Action& action : *own.program) {
    const ActionTime& time = timers_[static_cast<std::size_t>(simulated)].time_of(action, rank.trace(kind_).of(action));
    times.times.push_back(&time);
    switch (lane_of(action.kind)) {
      case Lane::compute: own.works.push_back(lanes.of(action)); break;
      case Lane::transfer:
        own.works.push_back(
            lanes.transfer(action, blueprint_.schedule().rank_of_stage[static_cast<std::size_t>(other_stage(action))]));
        break;
      case Lane::collective:
        own.works.push_back(lanes.collective(action, participants(simulated, group_of(time))));
        break;
    }
    own.works.back().seconds = time.seconds;
    add_issue(action, time, own);
  }
  if (blueprint_.config().training.cuda_graphs)
    issue_as_graph(timers_[static_cast<std::size_t>(simulated)].launch_seconds(), own.works);
  own.num_lanes = lanes.num_lanes();
  lane_names_.push_back(lanes.lane_names());
}

}  // namespace echelon
