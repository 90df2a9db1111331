// Whole tensors by their global names, put together from the slices of all ranks of a process: what is compared when a
// layout is verified.
#pragma once

#include "engine/param_pieces.h"

#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace echelon {

class TensorCollection {
 public:
  /// Adds the slices that this rank would write to a checkpoint. Safe from many ranks at once.
  void add_values(RankModel& model, Ops& ops);
  /// Adds the owned part of the reduced gradients times `factor`, each once over all ranks.
  void add_gradients(RankModel& model, Ops& ops, double factor);

  [[nodiscard]] const std::map<std::string, std::vector<double>>& tensors() const { return tensors_; }
  /// How often each element of the tensor was added; a complete collection has 1 everywhere.
  [[nodiscard]] const std::map<std::string, std::vector<int>>& counts() const { return counts_; }

 private:
  void add(const ParamPiece& piece, const std::vector<double>& numbers);

  std::mutex mutex_;
  std::map<std::string, std::vector<double>> tensors_;
  std::map<std::string, std::vector<int>> counts_;
};

/// The root mean square of all values: errors of gradients smaller than this are relative to it.
[[nodiscard]] double root_mean_square(const TensorCollection& tensors);

}  // namespace echelon
