// Which experts tokens choose, on a layout and on one rank. They are compared before any value: a token that chooses
// otherwise explains every difference after it. Where two scores are closer than rounding, both choices are right: one
// rank takes the layout's then, so that the rest can be compared. The same holds of rows that experts drop by weights.
#pragma once

#include "engine/layout_run.h"
#include "verify/router/near_ties.h"

#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace echelon {

/// A token of a step's global batch, sequence * T + position, in a layer with experts.
struct ChoicePlace {
  std::int64_t step = 0;
  std::string router;  // "model.layers.3.mlp.gate.weight"
  std::int64_t token = 0;
  auto operator<=>(const ChoicePlace&) const = default;
};
using ChosenExperts = std::vector<std::int32_t>;

/// What a layout chose, and by what.
struct RoutedChoice {
  RoutedToken token;
  ChosenExperts experts;
  ChosenExperts kept = {};  // the same, with -1 where a row is beyond the capacity of its expert
};

/// Of all ranks of a layout. Threads may add at once.
class Choices {
 public:
  void add(ChoicePlace place, RoutedChoice choice);
  /// nullptr: the token was not routed.
  [[nodiscard]] const RoutedChoice* at(const ChoicePlace& place) const;

 private:
  std::mutex mutex_;
  std::map<ChoicePlace, RoutedChoice> choices_;
};

/// How the choices of a layout compare with those of one rank.
struct ChoiceComparison {
  std::int64_t num_choices = 0;   // of tokens, layers and steps
  std::int64_t num_ties = 0;      // others, between scores that rounding may order: replayed on one rank
  std::int64_t num_row_ties = 0;  // rows that are kept in place of others, whose weights rounding may order: the same
  std::int64_t num_wrong = 0;     // others, between scores that differ
  ChoicePlace first_wrong = {};
  std::string sentence = {};  // of it
};

/// Adds the choices of training's forward passes. `inner` wraps what the layout computes through.
[[nodiscard]] Interpose recorded(const Blueprint& layout, const BatchSource& batches, Choices& choices,
                                 const Interpose& inner);
/// On one rank: counts what `choices` has otherwise, and takes ties from it.
struct ReplayOptions {
  const Blueprint& one_rank;
  const BatchSource& batches;
  const Choices& choices;
  double rounding;  // of a score, relative to the largest
};
[[nodiscard]] Interpose replayed(const ReplayOptions& options, const Interpose& inner, ChoiceComparison& comparison);

}  // namespace echelon
