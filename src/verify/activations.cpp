#include "verify/activations.h"

#include "nn/head_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

namespace echelon {
namespace {

/// Ranks that share a kv head, where each has one gradient of its keys: neither blocks of a ring nor parts of clipped
/// values are summed before they are read.
int replicas_with_parts(const Case& at) {
  const ModelSpec& model = at.config().model;
  const bool has_parts = at.mesh().degree(Axis::cp) == 1 && !model.has_latents() && model.clip_qkv == 0;
  return has_parts ? kv_replicas(model, at.mesh().degree(Axis::tp)) : 1;
}

void run_probed(const Case& at, const Blueprint& blueprint, const TokenPlaces& places, const Interpose& inner,
                const ReadListener& listener) {
  RunObserver observer;
  const int replicas = replicas_with_parts(at);
  const Interpose interpose = [&](Ops& ops, Mesh& mesh) {
    return std::make_unique<Probe>(places, replicas, listener, ops, mesh, inner);
  };
  run_layout({.blueprint = blueprint, .batches = at.batches, .num_steps = places.step(), .interpose = interpose},
             observer);
}

double largest_difference(const Read& read, const Values& expected) {
  double error = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::abs(read.values[i] - expected[i]);
    if (!std::isnan(expected[i]) && !(difference <= error)) error = difference;
  }
  return error;
}

}  // namespace

Activations::Activations(const Case& at, std::int64_t step)
    : places_(at.config(), at.batches, step),
      num_tokens_(at.config().training.global_batch_size * at.config().training.seq_len) {
  const Blueprint blueprint(one_rank(at.config()));
  const TokenPlaces of_one_rank(blueprint.config(), at.batches, step);
  run_probed(at, blueprint, of_one_rank, {}, [this](const Read& read) { add(read); });
  for (auto& [name, activation] : activations_) {
    for (const double number : activation.values) activation.largest = std::max(activation.largest, std::abs(number));
    double& largest = largest_[name.is_backward ? 1 : 0];
    largest = std::max(largest, activation.largest);
  }
}

void Activations::add(const Read& read) {
  const auto position = positions_.try_emplace(read.name, static_cast<int>(positions_.size())).first->second;
  if (const auto layer = layer_index_of(read.name.tensor); layer && read.name.is_backward)
    first_gradients_.try_emplace(*layer, position);
  Activation& activation = activations_[read.name];
  activation.num_columns = read.num_columns;
  activation.values.resize(static_cast<std::size_t>(num_tokens_ * read.num_columns));
  for (std::int64_t row = 0; row < read.num_rows(); ++row)
    std::copy_n(read.values.begin() + row * read.num_columns, read.num_columns,
                activation.values.begin() + read.tokens[static_cast<std::size_t>(row)] * read.num_columns);
}

const Activation* Activations::of(const ReadName& name) const {
  const auto found = activations_.find(name);
  if (found != activations_.end()) return &found->second;
  return name.is_backward ? of({false, name.tensor}) : nullptr;
}

Values Activations::expected(const Read& read) const {
  Values values(read.values.size(), std::numeric_limits<double>::quiet_NaN());
  const bool is_range = is_of_ranges(read.name);
  const int block = places_.block_at(places_.place_of(read.rank, read.microbatch).cp_rank, read.hop);
  for (std::int64_t row = 0; row < read.num_rows(); ++row) {
    const std::int64_t token = read.tokens[static_cast<std::size_t>(row)];
    if (token == no_token) continue;
    double* out = values.data() + row * read.num_columns;
    if (is_range) {
      const RowRange range =
          places_.rows_seen_by(token, block, window_of_layer(places_.config().model, read.name.tensor));
      out[0] = static_cast<double>(range.begin);
      out[1] = static_cast<double>(range.end);
      continue;
    }
    const Activation& whole = *of(read.name);
    const std::int64_t num_columns = std::min(read.num_columns, whole.num_columns - read.first_column);
    for (std::int64_t i = 0; i < num_columns; ++i) out[i] = whole.row(token)[read.first_column + i];
  }
  return values;
}

double Activations::error_of(const Read& read) const {
  if (is_of_ranges(read.name)) return largest_difference(read, expected(read));
  const Activation* activation = of(read.name);
  if (activation == nullptr) return 0;
  constexpr double least_share = 1e-6;
  const double least =
      std::max(least_share * largest_[read.name.is_backward ? 1 : 0], std::numeric_limits<double>::min());
  return largest_difference(read, expected(read)) / std::max(activation->largest, least);
}

Activations::Position Activations::position(const Read& read) const {
  const auto layer = layer_index_of(read.name.tensor);
  const auto first = read.is_recomputed && layer ? first_gradients_.find(*layer) : first_gradients_.end();
  if (first == first_gradients_.end()) return {position_of(read.name), std::numeric_limits<int>::max()};
  return {first->second, position_of({false, read.name.tensor})};
}

int Activations::position_of(const ReadName& name) const {
  // Ranges are read after the keys.
  if (is_of_ranges(name))
    return position_of({name.is_backward, read_of_heads("keys", attention_layer_of(name.tensor))});
  const auto found = positions_.find(name);
  return found != positions_.end() ? found->second : std::numeric_limits<int>::max();
}

FirstWrongRead first_wrong_read(const Case& at, const Activations& expected, bool is_backward) {
  using Place = std::tuple<Activations::Position, int, ReadName>;  // position, microbatch
  std::mutex mutex;
  std::optional<Place> first;
  run_probed(at, at.blueprint, expected.places(), at.interpose, [&](const Read& read) {
    if (read.name.is_backward != is_backward || expected.error_of(read) <= at.tolerance) return;
    const Place place = {expected.position(read), read.microbatch, read.name};
    const std::lock_guard lock(mutex);
    if (!first || place < *first) first = place;
  });
  FirstWrongRead result;
  if (!first) return result;
  run_probed(at, at.blueprint, expected.places(), at.interpose, [&](const Read& read) {
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

std::string describe_read(const Case& at, std::int64_t step, const FirstWrongRead& first) {
  std::set<int> ranks;
  for (const WrongRead& wrong : first.wrong) ranks.insert(wrong.read.rank);
  const Read& read = first.wrong.front().read;
  return fmt::format("{} pass of step {}, microbatch {}, first seen as the {} on {}",
                     read.name.is_backward ? "backward" : "forward", step, read.microbatch, read.name.tensor,
                     describe_ranks(at.mesh(), {ranks.begin(), ranks.end()}));
}

}  // namespace echelon
