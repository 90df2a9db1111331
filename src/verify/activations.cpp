#include "verify/activations.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace echelon {
namespace {

void run_probed(const Case& at, const Blueprint& blueprint, const Interpose& inner, std::int64_t step,
                const ReadListener& listener) {
  RunObserver observer;
  const Interpose interpose = [&](Ops& ops, Mesh& mesh) {
    return std::make_unique<Probe>(blueprint.config(), step, listener, ops, mesh, inner);
  };
  run_layout({.blueprint = blueprint, .batches = at.batches, .num_steps = step, .interpose = interpose}, observer);
}

}  // namespace

Activations::Activations(const Case& at, std::int64_t step)
    : num_tokens_(at.config().training.global_batch_size * at.config().training.seq_len) {
  const Blueprint blueprint(one_rank(at.config()));
  run_probed(at, blueprint, {}, step, [this](const Read& read) { add(read); });
  for (auto& [name, activation] : activations_)
    for (const double number : activation.values) activation.largest = std::max(activation.largest, std::abs(number));
}

void Activations::add(const Read& read) {
  positions_.try_emplace(read.name, static_cast<int>(positions_.size()));
  Activation& activation = activations_[read.name];
  activation.num_columns = read.num_columns;
  activation.values.resize(static_cast<std::size_t>(num_tokens_ * read.num_columns));
  std::ranges::copy(read.values, activation.values.begin() + read.first_row * read.num_columns);
}

const Activation* Activations::of(const ReadName& name) const {
  const auto found = activations_.find(name);
  if (found != activations_.end()) return &found->second;
  return name.is_backward ? of({false, name.tensor}) : nullptr;
}

Values Activations::expected(const Read& read) const {
  const Activation& activation = *of(read.name);
  Values values(read.values.size(), std::numeric_limits<double>::quiet_NaN());
  for (std::int64_t row = 0; row < read.num_rows(); ++row)
    for (std::int64_t column = 0; column < read.num_columns && read.first_column + column < activation.num_columns;
         ++column)
      values[static_cast<std::size_t>(row * read.num_columns + column)] =
          activation.row(read.first_row + row)[read.first_column + column];
  return values;
}

double Activations::error_of(const Read& read) const {
  const Activation* activation = of(read.name);
  if (activation == nullptr) return 0;
  const Values values = expected(read);
  double error = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double difference = std::abs(read.values[i] - values[i]);
    if (!std::isnan(values[i]) && !(difference <= error)) error = difference;
  }
  return error / std::max(activation->largest, std::numeric_limits<double>::min());
}

int Activations::position(const ReadName& name) const {
  const auto found = positions_.find(name);
  return found != positions_.end() ? found->second : std::numeric_limits<int>::max();
}

FirstWrongRead first_wrong_read(const Case& at, const Activations& expected, std::int64_t step, bool is_backward) {
  using Place = std::tuple<int, int, ReadName>;  // position, microbatch
  std::mutex mutex;
  std::optional<Place> first;
  run_probed(at, at.blueprint, at.interpose, step, [&](const Read& read) {
    if (read.name.is_backward != is_backward || expected.error_of(read) <= at.tolerance) return;
    const Place place = {expected.position(read.name), read.microbatch, read.name};
    const std::lock_guard lock(mutex);
    if (!first || place < *first) first = place;
  });
  FirstWrongRead result;
  if (!first) return result;
  run_probed(at, at.blueprint, at.interpose, step, [&](const Read& read) {
    if (read.name != std::get<ReadName>(*first) || read.microbatch != std::get<1>(*first)) return;
    const std::lock_guard lock(mutex);
    auto& list = expected.error_of(read) > at.tolerance ? result.wrong : result.others;
    list.push_back({read, *read.partial});
    list.back().read.partial = nullptr;
  });
  for (auto* list : {&result.wrong, &result.others})
    std::ranges::stable_sort(*list, {}, [](const WrongRead& wrong) { return wrong.read.rank; });
  return result;
}

}  // namespace echelon
