// Delays a sum of squares or an update until the next operation is known. Parameters follow each other in a bucket, so
// what a unit asks for parameter by parameter becomes few launches over many of them. Every other operation, and code
// that waits for results, first gets what is held.
//
// An update treats each element by itself, so its bits do not depend on this. Updates are not joined if their weight
// decay differs, or if each parameter draws its own random bits (moments in bfloat16).
#pragma once

#include "ops/operations/optimizer.h"

#include <optional>
#include <utility>

namespace echelon::cuda {

class JoinedOptimizer {
 public:
  /// True if the operation now includes `args`, whose tensors follow its own in memory.
  [[nodiscard]] bool extends(const SumOfSquaresArgs& args);
  [[nodiscard]] bool extends(const AdamWArgs& args);

  /// Nothing may be held before.
  void hold(const SumOfSquaresArgs& args) { squares_ = args; }
  void hold(const AdamWArgs& args) { update_ = args; }

  /// f(arguments) of what is held, which is not held any more.
  template <class F>
  void release(F&& f) {
    if (squares_) f(*std::exchange(squares_, std::nullopt));
    if (update_) f(*std::exchange(update_, std::nullopt));
  }

 private:
  std::optional<SumOfSquaresArgs> squares_;
  std::optional<AdamWArgs> update_;
};

}  // namespace echelon::cuda
