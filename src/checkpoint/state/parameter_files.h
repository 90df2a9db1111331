// Which files of a checkpoint have a part of a parameter. A manifest names ranges of parameters; a list of files for
// each parameter could be the square of it.
#pragma once

#include "checkpoint/state/manifest.h"

#include <cstddef>
#include <vector>

namespace echelon {

class ParameterFiles {
 public:
  ParameterFiles() = default;
  explicit ParameterFiles(const std::vector<Manifest::File>& files);

  /// The numbers of the files that have a part of it, ascending. Takes O(log n) for each.
  [[nodiscard]] std::vector<std::size_t> files_of(std::int64_t parameter) const;

 private:
  struct Entry {
    std::int64_t first = 0, end = 0;
    std::size_t file = 0;
    std::int64_t last_end = 0;  // of the entries of which this one is the middle
  };
  std::int64_t set_last_ends(std::size_t first, std::size_t end);
  void find(std::size_t first, std::size_t end, std::int64_t parameter, std::vector<std::size_t>& found) const;

  std::vector<Entry> entries_;  // by first
};

}  // namespace echelon
