#include "engine/tensor_collection.h"

#include <algorithm>
#include <cmath>

namespace echelon {

void TensorCollection::add_values(RankModel& model, Ops& ops) {
  visit_values(model, [&](const ParamPiece& piece) {
    if (piece.is_first) add(piece, downloaded(ops, piece.numbers));
  });
}

void TensorCollection::add_gradients(RankModel& model, Ops& ops, double factor) {
  visit_gradients(model, [&](const ParamPiece& piece) {
    if (piece.is_first) add(piece, downloaded(ops, piece.numbers, factor));
  });
}

void TensorCollection::add(const ParamPiece& piece, const std::vector<double>& numbers) {
  const std::lock_guard lock(mutex_);
  const auto size = static_cast<std::size_t>(piece.param.global_sizes().num_elements());
  std::vector<double>& tensor = tensors_[piece.param.name];
  std::vector<int>& count = counts_[piece.param.name];
  tensor.resize(size);
  count.resize(size);
  piece.slice.for_each_run([&](const Run& run) {
    std::copy_n(numbers.begin() + run.local, run.count, tensor.begin() + run.global);
    std::for_each_n(count.begin() + run.global, run.count, [](int& each) { ++each; });
  });
}

double root_mean_square(const TensorCollection& tensors) {
  double squares = 0, count = 0;
  for (const auto& [name, numbers] : tensors.tensors())
    for (const double number : numbers) {
      squares += number * number;
      count += 1;
    }
  return std::sqrt(squares / count);
}

}  // namespace echelon
