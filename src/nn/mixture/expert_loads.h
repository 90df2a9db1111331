// What the ranks of experts tell each other of their rows, exchange by exchange of a rank's program: a run records it,
// and a trace to which it is given has the rows and the rounds of that run.
#pragma once

#include "base/error.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace echelon {

class ExpertLoads {
 public:
  void add(std::vector<std::int32_t> of_ranks) { exchanges_.push_back(std::move(of_ranks)); }
  /// Of the next exchange, in the order in which they were added.
  [[nodiscard]] const std::vector<std::int32_t>& next() {
    if (next_ == exchanges_.size()) throw Failure("the loads of more exchanges are asked for than were recorded");
    return exchanges_[next_++];
  }
  [[nodiscard]] bool is_at_end() const { return next_ == exchanges_.size(); }

 private:
  std::vector<std::vector<std::int32_t>> exchanges_;
  std::size_t next_ = 0;
};

}  // namespace echelon
