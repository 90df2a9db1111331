// The parameters of a rank piece by piece, as values that can be compared with another layout's: which elements of
// which whole tensor they are.
#pragma once

#include "engine/rank_model.h"

#include <functional>
#include <vector>

namespace echelon {

struct ParamPiece {
  const Param& param;
  TensorSlice slice;  // a range of the elements of param.slice
  Tensor numbers;     // flat, one value for each of them
  bool is_first;      // this rank's copy of these values is the one that counts
};
using PieceVisitor = std::function<void(const ParamPiece& piece)>;

/// Every parameter that this rank computes with, every copy of it; under ZeRO-3 of each its owned part.
void visit_values(RankModel& model, const PieceVisitor& visit);
/// The owned part of every reduced gradient, every copy of it.
void visit_gradients(RankModel& model, const PieceVisitor& visit);
/// All of the gradients of the unit that `action` is about, as its rank's backward pass left them; of all units if it
/// is about none. Of sharded gradients, the owned part after its sum over dp_shard; nothing before that sum.
void visit_local_gradients(RankModel& model, const Action& action, const PieceVisitor& visit);

/// The values of x times `factor`, in float64.
[[nodiscard]] std::vector<double> downloaded(Ops& ops, const Tensor& x, double factor = 1.0);

}  // namespace echelon
