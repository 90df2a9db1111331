#include "verify/comparison.h"

#include "verify/combination.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace echelon {
namespace {

constexpr double least_scale = 1e-300;  // if all values are zero, zeros are equal

}  // namespace

std::string_view name_of(Quantity quantity) {
  switch (quantity) {
    case Quantity::loss: return "loss";
    case Quantity::router: return "router";
    case Quantity::gradient: return "gradient";
    case Quantity::norm: return "norm";
    case Quantity::weight: return "weight";
  }
  return "?";
}

// AdamW divides a gradient by roughly its own magnitude. In float32 the rounding noise of a small gradient can
// therefore move its weight by up to the learning rate.
Tolerances tolerances_of(DType dtype) {
  return dtype == DType::float64 ? Tolerances{1e-11, 1e-11, 1e-9, 1e-10, 1e-8} : Tolerances{1e-5, 1e-5, 1e-3, 1e-4, 10};
}

std::vector<Difference> Comparison::differences() const {
  std::vector<Difference> list;
  for (const auto& [key, difference] : differences_) {
    list.push_back(difference);
    std::ranges::sort(list.back().ranks, {}, &RankDifference::rank);
  }
  for (const auto& [key, count] : num_counted_) {
    const std::string& tensor = reference_.tensors()[static_cast<std::size_t>(key.position)];
    if (count != static_cast<std::int64_t>(reference_.weight(0, tensor).size()))
      list.push_back({.step = key.step, .quantity = key.quantity, .tensor = tensor, .error = INFINITY, .ranks = {}});
  }
  std::ranges::stable_sort(list, {}, [&](const Difference& difference) {
    return Key{difference.step, difference.quantity,
               difference.tensor.empty() ? 0 : reference_.position(difference.tensor)};
  });
  return list;
}

void Comparison::starts(const RankView& rank) { compare_weights(rank, 0); }

void Comparison::has_gradients(const RankView& rank, std::int64_t step, double factor) {
  visit_gradients(rank.run.model(), [&](const ParamPiece& piece) {
    compare_piece({step, Quantity::gradient, reference_.position(piece.param.name)}, rank, piece, factor);
  });
}

void Comparison::ended_step(const RankView& rank, std::int64_t step, const StepResult& result) {
  compare_number(rank, {step, Quantity::loss, 0}, result.loss, reference_.step(step).loss);
  compare_number(rank, {step, Quantity::norm, 0}, result.grad_norm, reference_.step(step).grad_norm);
  compare_weights(rank, step);
  compare_routers(rank, step);
  const std::lock_guard lock(mutex_);
  results_[{step, rank.mesh.rank()}] = result;
}

// Counts are equal, and so are biases, which move by the same amount or not.
void Comparison::compare_routers(const RankView& rank, std::int64_t step) {
  if (reference_.routers().empty()) return;
  const RouterValues actual = router_values(rank);
  const RouterValues& expected = reference_.step(step).routers;
  for (const std::string& router : reference_.routers()) {
    const RouterRow a = router_row(reference_, actual, router), b = router_row(reference_, expected, router);
    RankDifference found = {.rank = rank.mesh.rank(), .count = 1, .of = 1};
    const auto note_error = [&](double x, double y, double scale) {
      const double error = std::abs(x - y) / std::max(scale, least_scale);
      if (!(error <= found.error)) found.error = error;
    };
    for (std::size_t e = 0; e < b.counts.size(); ++e) note_error(a.counts[e], b.counts[e], 1);
    for (std::size_t i = 0; i < b.losses.size(); ++i) note_error(a.losses[i], b.losses[i], std::abs(b.losses[i]));
    for (std::size_t e = 0; e < b.bias.size(); ++e) note_error(a.bias[e], b.bias[e], std::abs(b.bias[e]));
    note_error(a.num_nan[0], b.num_nan[0], 1);
    note_error(a.num_dropped[0], b.num_dropped[0], 1);
    note({step, Quantity::router, reference_.position(router)}, router, found);
  }
  const std::lock_guard lock(mutex_);
  routers_[{step, rank.mesh.rank()}] = actual;
}

void Comparison::compare_weights(const RankView& rank, std::int64_t step) {
  visit_values(rank.run.model(), [&](const ParamPiece& piece) {
    compare_piece({step, Quantity::weight, reference_.position(piece.param.name)}, rank, piece, 1.0);
  });
}

void Comparison::compare_number(const RankView& rank, Key key, double actual, double expected) {
  const double error = std::abs(actual - expected) / std::max(std::abs(expected), least_scale);
  note(key, "", {.rank = rank.mesh.rank(), .error = error, .count = 1, .of = 1});
}

void Comparison::compare_piece(Key key, const RankView& rank, const ParamPiece& piece, double factor) {
  const bool is_gradient = key.quantity == Quantity::gradient;
  const std::string& name = piece.param.name;
  const std::vector<double>& expected =
      is_gradient ? reference_.gradient(key.step, name) : reference_.weight(key.step, name);
  const double scale = std::max(
      {largest(expected), is_gradient ? reference_.step(key.step).gradient_floor : floor_of_weights_, least_scale});
  const double tolerance = tolerances_[static_cast<std::size_t>(key.quantity)];
  const std::vector<double> values = downloaded(rank.ops, piece.numbers, factor);
  RankDifference found = {.rank = rank.mesh.rank()};
  piece.slice.for_each_run([&](const Run& run) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      const std::int64_t index = run.global + i;
      const double error =
          std::abs(values[static_cast<std::size_t>(run.local + i)] - expected[static_cast<std::size_t>(index)]) / scale;
      ++found.of;
      if (!(error <= found.error)) found.error = error;  // a NaN counts as different
      if (error <= tolerance) continue;
      if (found.count++ == 0) found.first = index;
      found.last = index;
    }
  });
  note(key, name, found);
  const std::lock_guard lock(mutex_);
  num_counted_[key] += piece.is_first ? found.of : 0;
}

void Comparison::note(Key key, const std::string& tensor, const RankDifference& found) {
  const std::lock_guard lock(mutex_);
  WorstError& worst = worst_[static_cast<std::size_t>(key.quantity)];
  const bool is_earlier =
      found.error == worst.error && std::tie(key.step, found.rank) < std::tie(worst.step, worst.rank);
  if (!(found.error <= worst.error) || is_earlier) worst = {found.error, tensor, key.step, found.rank};
  if (found.error <= tolerances_[static_cast<std::size_t>(key.quantity)]) return;
  Difference& difference = differences_[key];
  difference.step = key.step;
  difference.quantity = key.quantity;
  difference.tensor = tensor;
  if (!(found.error <= difference.error)) difference.error = found.error;
  difference.ranks.push_back(found);
}

}  // namespace echelon
