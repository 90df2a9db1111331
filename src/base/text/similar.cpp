#include "base/text/similar.h"

#include "base/error.h"

#include <algorithm>
#include <vector>

namespace echelon {

// Three rolling rows, because a transposition looks two rows back.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  constexpr std::size_t most_letters = 200;  // what a file claims to be a name may be of any length
  a = a.substr(0, most_letters);
  b = b.substr(0, most_letters);
  std::vector<std::size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

bool is_similar(std::string_view a, std::string_view b) {
  return 2 * edit_distance(a, b) <= std::max(a.size(), b.size());
}

std::string similar(std::string_view name, std::span<const std::string_view> candidates) {
  const std::string closest = closest_name(name, candidates);
  return is_similar(name, closest) ? closest : "";
}

}  // namespace echelon
