// What follows the passes that compute a unit's gradient: it is reduced over the data axes, stored, and summed over
// replicas. Each link of this chain waits for the previous one. Each link after the first is one unit pass later, so
// that the communication overlaps with that pass.
#pragma once

#include "schedule/lowering/unit_passes.h"

#include <functional>
#include <map>
#include <vector>

namespace echelon {

class GradientChains {
 public:
  using Add = std::function<int(const Action& place, std::vector<int> after)>;  // returns the action's id
  GradientChains(const LoweringOptions& options, Add add) : options_(options), add_(std::move(add)) {}

  /// The actions `writers` have computed a gradient of unit `key`. `place` gives its links their stage, unit and, from
  /// ZeRO-2 on, microbatch.
  struct Gradient {
    UnitKey key;
    Action place;
    std::vector<int> writers;
    bool is_last = false;  // of the step
  };
  /// Adds the first link.
  void begin(const Gradient& gradient, int count_tokens);
  /// One more link of every chain.
  void advance();
  /// All links of the chains of a unit, or of all: its buffers are free then.
  void finish(const UnitKey& key);
  void finish();

  /// The last action on the unit's gradient so far; -1 without one.
  [[nodiscard]] int done(const UnitKey& key) const;

 private:
  struct Chain {
    UnitKey key;
    std::vector<Action> links;  // still to come
  };
  void add_link(Chain& chain);
  [[nodiscard]] std::vector<Action> links_of(const Gradient& gradient) const;

  const LoweringOptions& options_;
  Add add_;
  std::vector<Chain> chains_;
  std::map<UnitKey, int> done_;
};

}  // namespace echelon
