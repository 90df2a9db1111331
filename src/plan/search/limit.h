// What ends a search: always the same amount of work, or a clock if the request names a time.
#pragma once

#include "plan/search/tree.h"

#include <algorithm>
#include <limits>

namespace echelon {

class SearchLimit {
 public:
  /// It refers to both. What the request allows starts here.
  SearchLimit(const PlanRequest& request, const PlanTree& tree) : request_(request), tree_(tree) { whole_ = after(1); }

  struct End {
    std::int64_t work = std::numeric_limits<std::int64_t>::max();
    double seconds = std::numeric_limits<double>::infinity();
  };
  /// The clock is read only for a request that names a time.
  [[nodiscard]] double now() const { return request_.seconds > 0 ? request_.clock() : 0; }
  /// So much of the whole limit from now on, but not more than is left of it.
  [[nodiscard]] End after(double part) const {
    End end = whole_;
    if (request_.work > 0)
      end.work = std::min(end.work,
                          tree_.counts().work + static_cast<std::int64_t>(part * static_cast<double>(request_.work)));
    if (request_.seconds > 0) end.seconds = std::min(end.seconds, now() + part * request_.seconds);
    return end;
  }
  [[nodiscard]] bool is_before(const End& end) const { return tree_.counts().work < end.work && now() < end.seconds; }

 private:
  const PlanRequest& request_;
  const PlanTree& tree_;
  End whole_;
};

}  // namespace echelon
