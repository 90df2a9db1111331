// Delays a fill, a rotation, a sum of squares or an update until the next operation is known, so that what is asked for
// tensor by tensor becomes one launch over many of them. Every other operation, and code that waits for results, first
// gets what is held.
//
// Parameters that follow each other in memory are one segment; a launch has up to most_segments of them. An element's
// bits do not depend on this: an update treats each by itself. Squares are added in another order.
#pragma once

#include "ops/operations/elementwise.h"
#include "ops/operations/optimizer.h"
#include "ops/operations/rope.h"

#include <utility>
#include <vector>

namespace echelon::cuda {

/// What one launch takes: more would exceed the 4 KB of a kernel's arguments.
template <class Args>
inline constexpr std::size_t most_segments = 96;
template <>
inline constexpr std::size_t most_segments<AdamWArgs> = 32;
template <>
inline constexpr std::size_t most_segments<RopeArgs> = 2;  // q and k

class JoinedOperations {
 public:
  /// True if what is held now includes `args`.
  [[nodiscard]] bool extends(const FillArgs& args);
  [[nodiscard]] bool extends(const RopeArgs& args);
  [[nodiscard]] bool extends(const SumOfSquaresArgs& args);
  [[nodiscard]] bool extends(const AdamWArgs& args);

  /// Nothing may be held before.
  void hold(const FillArgs& args) { fills_ = {args}; }
  void hold(const RopeArgs& args) { rotations_ = {args}; }
  void hold(const SumOfSquaresArgs& args) { squares_ = {args}; }
  void hold(const AdamWArgs& args) { updates_ = {args}; }

  /// f(arguments of all segments) of what is held, which is not held any more.
  template <class F>
  void release(F&& f) {
    if (!fills_.empty()) f(std::exchange(fills_, {}));
    if (!rotations_.empty()) f(std::exchange(rotations_, {}));
    if (!squares_.empty()) f(std::exchange(squares_, {}));
    if (!updates_.empty()) f(std::exchange(updates_, {}));
  }

 private:
  std::vector<FillArgs> fills_;
  std::vector<RopeArgs> rotations_;
  std::vector<SumOfSquaresArgs> squares_;
  std::vector<AdamWArgs> updates_;
};

/// Of all segments: one, or none without any element.
[[nodiscard]] std::int64_t num_kernels_of(const std::vector<FillArgs>& held);
[[nodiscard]] std::int64_t num_kernels_of(const std::vector<RopeArgs>& held);
[[nodiscard]] std::int64_t num_kernels_of(const std::vector<SumOfSquaresArgs>& held);
[[nodiscard]] std::int64_t num_kernels_of(const std::vector<AdamWArgs>& held);

}  // namespace echelon::cuda
