// The scores of a token for the experts of a mixture, from its logits.
#pragma once

#include "ops/operations/mixture/router.h"

#include <algorithm>
#include <cmath>

namespace echelon {

/// Each is computed where it is read: few are read but by a softmax's gradient.
template <class A>
class Scores {
 public:
  Scores(const A* z, std::int64_t E, ExpertScores kind) : z_(z), kind_(kind) {
    is_nan_ = std::any_of(z, z + E, [](A each) { return std::isnan(each); });
    if (kind == ExpertScores::sigmoid) return;
    max_ = *std::max_element(z, z + E);
    for (std::int64_t e = 0; e < E; ++e) sum_ += std::exp(z[e] - max_);
  }

  [[nodiscard]] A at(std::int64_t e) const {
    return kind_ == ExpertScores::softmax ? std::exp(z_[e] - max_) / sum_ : 1 / (1 + std::exp(-z_[e]));
  }
  [[nodiscard]] bool is_nan() const { return is_nan_ || std::isnan(sum_); }

 private:
  const A* z_;
  ExpertScores kind_;
  A max_ = 0, sum_ = 0;
  bool is_nan_ = false;
};

}  // namespace echelon
