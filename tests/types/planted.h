// Faults between a step and its backend and transport: operations left out or changed, collectives left out, doubled or
// sent to another group.
#pragma once

#include "comm/traffic.h"
#include "engine/types/layout_types.h"
#include "ops/stored_operation.h"

#include <functional>
#include <memory>
#include <vector>

namespace echelon::testing {

struct Collective {
  CommKind kind{};
  Group group;
  Tensor x;  // the full buffer
  ReduceOp op = ReduceOp::sum;
};

/// What becomes of a collective: the groups over which it is done, one after the other.
using PlantInMesh = std::function<std::vector<Group>(const Collective&)>;
/// May change an operation; false: it is left out.
using PlantInOps = std::function<bool(StoredOperation&)>;
/// The shard that is gathered in place of the right one.
using PlantInShard = std::function<Tensor(Tensor full, Tensor shard)>;
using PlantInRun = std::function<void(RankRun&)>;

struct Plant {
  PlantInMesh mesh = [](const Collective& collective) { return std::vector{collective.group}; };
  PlantInOps ops = [](StoredOperation&) { return true; };
  PlantInShard shard = [](Tensor, Tensor part) { return part; };
  PlantInRun run = [](RankRun&) {};
};

/// Leaves out, or changes, the operation of a kind that comes after `before` others.
template <class Args, class F>
PlantInOps in_one(int before, F f) {
  return [f, before, seen = std::make_shared<int>(0)](StoredOperation& operation) {
    auto* args = std::get_if<Args>(&operation);
    return args == nullptr || (*seen)++ != before || f(*args);
  };
}

[[nodiscard]] Interpose interpose(const Plant& plant);

/// The sentence of the fault that types find on some representative rank; empty if they find none.
[[nodiscard]] std::string fault_of(const RunConfig& config, const Plant& plant);

}  // namespace echelon::testing
