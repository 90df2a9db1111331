#include "predict/step/step_lanes.h"

#include "schedule/timeline.h"

#include <fmt/format.h>

namespace echelon {

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
    case ActionKind::take_snapshot:
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

template <class Key>
int StepLanes::number(std::map<Key, int>& numbers, Key key, int size) {
  const auto [known, is_new] = numbers.try_emplace(std::move(key), static_cast<int>(work_.rendezvous_sizes.size()));
  if (is_new) work_.rendezvous_sizes.push_back(size);
  return known->second;
}

void StepLanes::start(int rank, int replica) {
  rank_ = rank;
  replica_ = replica;
  wires_.clear();
}

Work StepLanes::transfer(const Action& action, int peer) {
  const bool sends = is_send(action.kind);
  const int at = sends ? other_stage(action) : action.stage;
  Work work = of(action);
  work.lane = wires_.try_emplace({peer, sends}, num_lanes()).first->second;
  work.rendezvous = number(messages_, {replica_, is_forward_transfer(action.kind), at, action.microbatch}, 2);
  return work;
}

Work StepLanes::collective(const Action& action, const std::vector<int>& participants) {
  Work work = of(action);
  work.lane = collective_lane;
  if (participants.size() < 2) return work;
  const int nth = counts_[{rank_, action.kind, participants}]++;
  work.rendezvous = number(meetings_, {participants, action.kind, nth}, static_cast<int>(participants.size()));
  return work;
}

std::vector<std::string> StepLanes::lane_names() const {
  std::vector<std::string> names(static_cast<std::size_t>(num_lanes()));
  names[compute_lane] = "compute";
  names[collective_lane] = "collectives";
  for (const auto& [wire, lane] : wires_)
    names[static_cast<std::size_t>(lane)] = fmt::format("{} rank {}", wire.second ? "to" : "from", wire.first);
  return names;
}

}  // namespace echelon
