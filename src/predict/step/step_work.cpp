#include "predict/step/step_work.h"

#include "schedule/timeline.h"
#include "spec/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace echelon {
namespace {

/// Where a collective takes place; that of no axis if it sends nothing.
Group group_of(const ActionTime& collective) {
  return collective.communication_seconds.empty() ? Group() : collective.communication_seconds.begin()->first;
}

}  // namespace

bool is_hidden(ActionKind kind, const OverlapRules& overlap) {
  switch (kind) {
    case ActionKind::send_forward:
    case ActionKind::send_backward: return overlap.hides_transfers;
    case ActionKind::reduce_gradients:
    case ActionKind::reduce_parts:
    case ActionKind::sum_replicas:
    case ActionKind::sum_tied: return overlap.hides_gradient_reductions;
    case ActionKind::gather_parameters: return overlap.hides_parameter_gathers;
    case ActionKind::receive_forward:  // posted; who needs what comes waits for it by an edge
    case ActionKind::receive_backward:
    case ActionKind::count_tokens:
    case ActionKind::clip:
    case ActionKind::report: return true;
    case ActionKind::load_batch:
    case ActionKind::clear_gradients:
    case ActionKind::forward:
    case ActionKind::backward:
    case ActionKind::backward_input:
    case ActionKind::backward_weight:
    case ActionKind::open_gradients:
    case ActionKind::store_gradients:
    case ActionKind::update:
    case ActionKind::release_parameters: return false;
  }
  return false;
}

int other_stage(const Action& transfer) {
  const bool is_behind = is_send(transfer.kind) == is_forward_transfer(transfer.kind);
  return transfer.stage + (is_behind ? 1 : -1);
}

/// Numbers what ranks do together: a message by its receive, a collective by who takes part and how many of its kind
/// these have had before.
class StepWorks::Meetings {
 public:
  Meetings(const MeshShape& mesh, const Replicas& replicas, StepWork& work)
      : mesh_(mesh), replicas_(replicas), sizes_(work.meeting_sizes) {}

  int message(int replica_class, const Action& transfer) {
    const int at = is_send(transfer.kind) ? other_stage(transfer) : transfer.stage;
    return number({{replica_class}, is_forward_transfer(transfer.kind), at, transfer.microbatch}, 2);
  }

  /// Who takes part of the simulated ranks, ascending. A class that is there several times counts once.
  const std::vector<int>& participants(int simulated, int mesh_rank, const Group& group) {
    const auto [known, is_new] = participants_.try_emplace({simulated, group});
    if (!is_new) return known->second;
    const int num_stages = mesh_.degree(Axis::pp);
    std::set<int> there;
    if (replicas_.num_classes() == 1 && !group.axes.contains(Axis::pp))
      there.insert(simulated);
    else
      for (const int rank : mesh_.ranks_of(group, mesh_rank))
        there.insert(replicas_.class_of_rank(rank) * num_stages + mesh_.coordinate(rank, Axis::pp));
    known->second.assign(there.begin(), there.end());
    return known->second;
  }

  int collective(int simulated, ActionKind kind, const std::vector<int>& participants) {
    if (participants.size() < 2) return meets_nobody;
    const int nth = counts_[{simulated, kind, participants}]++;
    return number({participants, -1 - static_cast<int>(kind), nth, 0}, static_cast<int>(participants.size()));
  }

 private:
  using Key = std::tuple<std::vector<int>, int, int, int>;
  int number(const Key& key, int size) {
    const auto [known, is_new] = numbers_.try_emplace(key, static_cast<int>(sizes_.size()));
    if (is_new) sizes_.push_back(size);
    return known->second;
  }

  const MeshShape& mesh_;
  const Replicas& replicas_;
  std::vector<int>& sizes_;
  std::map<std::pair<int, Group>, std::vector<int>> participants_;
  std::map<std::tuple<int, ActionKind, std::vector<int>>, int> counts_;
  std::map<Key, int> numbers_;
};

StepWorks::StepWorks(const Blueprint& blueprint, const SoftwareProfile& profile, const DeviceMap& devices,
                     const std::map<int, double>& slow_ranks)
    : blueprint_(blueprint),
      profile_(profile),
      num_stages_(blueprint.mesh().degree(Axis::pp)),
      replicas_(devices, slow_ranks) {
  UnitTraces units(blueprint.config());
  for (int stage = 0; stage < num_stages_; ++stage)
    blueprints_.push_back(blueprint.rank(replicas_.rank_of(0, stage), units));
  const int num_simulated = num_stages_ * replicas_.num_classes();
  for (int simulated = 0; simulated < num_simulated; ++simulated)
    timers_.emplace_back(blueprint.config(), profile, devices, slow_ranks, mesh_rank(simulated));
  work_.slowdown_by_collectives = profile.overlap.slowdown_by_collectives;
  work_.slowdown_by_transfers = profile.overlap.slowdown_by_transfers;
  work_.ranks.resize(static_cast<std::size_t>(num_simulated));
  Meetings meetings(blueprint.mesh(), replicas_, work_);
  for (int simulated = 0; simulated < num_simulated; ++simulated) add_works(simulated, meetings);
}

int StepWorks::num_alike(int simulated) const {
  return replicas_.size_of(simulated / num_stages_) * blueprint_.mesh().degree(Axis::tp);
}

/// The lanes of a rank's wires, numbered as they come.
class StepWorks::Wires {
 public:
  explicit Wires(std::vector<std::string>& lane_names) : lane_names_(lane_names) {}
  int lane(int other_rank, bool is_send) {
    const auto [wire, is_new] = lanes_.try_emplace({other_rank, is_send}, static_cast<int>(lane_names_.size()));
    if (is_new) lane_names_.push_back(fmt::format("{} rank {}", is_send ? "to" : "from", other_rank));
    return wire->second;
  }

 private:
  std::vector<std::string>& lane_names_;
  std::map<std::pair<int, bool>, int> lanes_;
};

void StepWorks::add_works(int simulated, Meetings& meetings) {
  const RankBlueprint& rank = blueprints_[static_cast<std::size_t>(pipeline_rank(simulated))];
  RankWork& own = work_.ranks[static_cast<std::size_t>(simulated)];
  own.program = &rank.program(ProgramKind::training);
  RankTimes& times = times_.emplace_back(RankTimes{.work = &own});
  std::vector<std::string>& lane_names = lane_names_.emplace_back(std::vector<std::string>{"compute", "collectives"});
  Wires wires(lane_names);
  for (const Action& action : *own.program) {
    const ActionTime& time =
        timers_[static_cast<std::size_t>(simulated)].time_of(action, rank.trace(ProgramKind::training).of(action));
    times.times.push_back(&time);
    own.works.push_back({.is_hidden = is_hidden(action.kind, profile_.overlap)});
    Work& work = own.works.back();
    switch (lane_of(action.kind)) {
      case Lane::compute: break;
      case Lane::transfer:
        work.lane = wires.lane(blueprint_.schedule().rank_of_stage[static_cast<std::size_t>(other_stage(action))],
                               is_send(action.kind));
        work.meeting = meetings.message(simulated / num_stages_, action);
        break;
      case Lane::collective: {
        const std::vector<int>& there = meetings.participants(simulated, mesh_rank(simulated), group_of(time));
        work.lane = collective_lane;
        work.meeting = meetings.collective(simulated, action.kind, there);
        break;
      }
    }
    work.seconds = time.seconds;
  }
  own.num_lanes = static_cast<int>(lane_names.size());
}

}  // namespace echelon
