// Where a program has the action of a stage and microbatch, while it is built.
#pragma once

#include "schedule/schedule.h"

#include <cstddef>
#include <vector>

namespace echelon {

/// An id for each stage and microbatch, and for each of a few more indices; -1 where there is none.
class IdTable {
 public:
  explicit IdTable(const Schedule& schedule)
      : num_microbatches_(static_cast<std::size_t>(schedule.num_microbatches)),
        of_stages_(static_cast<std::size_t>(schedule.num_stages)) {}

  [[nodiscard]] int at(int stage, int microbatch, int index = 0) const {
    if (stage < 0 || stage >= static_cast<int>(of_stages_.size())) return -1;
    const std::vector<int>& of_stage = of_stages_[static_cast<std::size_t>(stage)];
    const std::size_t place = place_of(microbatch, index);
    return place < of_stage.size() ? of_stage[place] : -1;
  }
  void set(int stage, int microbatch, int id) { set(stage, microbatch, 0, id); }
  void set(int stage, int microbatch, int index, int id) {
    std::vector<int>& of_stage = of_stages_[static_cast<std::size_t>(stage)];
    const std::size_t size = (static_cast<std::size_t>(index) + 1) * num_microbatches_;
    if (of_stage.size() < size) of_stage.resize(size, -1);
    of_stage[place_of(microbatch, index)] = id;
  }

 private:
  [[nodiscard]] std::size_t place_of(int microbatch, int index) const {
    return static_cast<std::size_t>(index) * num_microbatches_ + static_cast<std::size_t>(microbatch);
  }

  std::size_t num_microbatches_;
  std::vector<std::vector<int>> of_stages_;  // index after index
};

}  // namespace echelon
