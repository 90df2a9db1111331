#include "checkpoint/state/parameter_files.h"

#include <algorithm>

namespace echelon {

ParameterFiles::ParameterFiles(const std::vector<Manifest::File>& files) {
  for (std::size_t f = 0; f < files.size(); ++f)
    for (const Range& range : files[f].parameters)
      if (range.count > 0) entries_.push_back({range.first, range.first + range.count, f});
  std::ranges::stable_sort(entries_, {}, &Entry::first);
  set_last_ends(0, entries_.size());
}

std::int64_t ParameterFiles::set_last_ends(std::size_t first, std::size_t end) {
  if (first == end) return 0;
  const std::size_t middle = first + (end - first) / 2;
  entries_[middle].last_end =
      std::max({entries_[middle].end, set_last_ends(first, middle), set_last_ends(middle + 1, end)});
  return entries_[middle].last_end;
}

std::vector<std::size_t> ParameterFiles::files_of(std::int64_t parameter) const {
  std::vector<std::size_t> found;
  find(0, entries_.size(), parameter, found);
  std::ranges::sort(found);
  return found;
}

void ParameterFiles::find(std::size_t first, std::size_t end, std::int64_t parameter,
                          std::vector<std::size_t>& found) const {
  if (first == end) return;
  const std::size_t middle = first + (end - first) / 2;
  const Entry& entry = entries_[middle];
  if (entry.last_end <= parameter) return;
  find(first, middle, parameter, found);
  if (entry.first > parameter) return;
  if (parameter < entry.end) found.push_back(entry.file);
  find(middle + 1, end, parameter, found);
}

}  // namespace echelon
