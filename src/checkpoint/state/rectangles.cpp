#include "checkpoint/state/rectangles.h"

#include <algorithm>
#include <map>

namespace echelon {

// A line sweeps over the rows. The columns of the rectangles on it are disjoint, so that a new one is compared with its
// two neighbours alone.
bool are_disjoint(std::vector<MatrixPart> rectangles) {
  std::ranges::sort(rectangles, {}, [](const MatrixPart& rectangle) { return rectangle.rows.first; });
  std::map<std::int64_t, std::int64_t> columns;         // on the line: where each rectangle's end, by their first one
  std::multimap<std::int64_t, std::int64_t> last_rows;  // where a rectangle leaves the line: its first column
  for (const MatrixPart& rectangle : rectangles) {
    if (rectangle.num_elements() == 0) continue;
    while (!last_rows.empty() && last_rows.begin()->first <= rectangle.rows.first) {
      columns.erase(last_rows.begin()->second);
      last_rows.erase(last_rows.begin());
    }
    const std::int64_t first = rectangle.columns.first, end = first + rectangle.columns.count;
    const auto right = columns.lower_bound(first);
    if (right != columns.end() && right->first < end) return false;
    if (right != columns.begin() && std::prev(right)->second > first) return false;
    columns.emplace(first, end);
    last_rows.emplace(rectangle.rows.first + rectangle.rows.count, first);
  }
  return true;
}

}  // namespace echelon
