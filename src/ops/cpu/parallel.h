// Division of an operation's work over threads: contiguous ranges of rows, columns or blocks, so that nothing is summed
// across threads.
#pragma once

#include "base/team.h"

#include <algorithm>
#include <cstdint>

namespace echelon {

/// f(first, last) for ranges that cover [0, count), on up to num_threads threads if there is work for them. Ranges
/// start at multiples of `granularity`.
struct Division {
  std::int64_t count = 0;
  std::int64_t work_per_item = 1;  // values touched
  std::int64_t granularity = 1;
  int num_threads = 1;
  // More where items take different times: threads take the next range when they have done one.
  int ranges_per_thread = 1;
};

template <class F>
void divide(const Division& work, F&& f) {
  constexpr std::int64_t smallest_share = 1 << 14;  // values; below, waking a thread costs more than it does
  const std::int64_t num_grains = (work.count + work.granularity - 1) / work.granularity;
  const std::int64_t useful =
      std::min(num_grains, work.count * std::max<std::int64_t>(work.work_per_item, 1) / smallest_share);
  const std::int64_t num_threads = useful > 1 ? Team::most_threads(work.num_threads) : 1;
  const std::int64_t most = num_threads > 1 ? num_threads * work.ranges_per_thread : 1;
  const std::int64_t num_shares = std::clamp<std::int64_t>(useful, 1, most);
  if (num_shares == 1) {
    if (work.count > 0) f(std::int64_t{0}, work.count);
    return;
  }
  auto share_of = [&](int share) {
    const std::int64_t first = num_grains * share / num_shares * work.granularity;
    const std::int64_t last = std::min(work.count, num_grains * (share + 1) / num_shares * work.granularity);
    f(first, last);
  };
  Team::of_this_thread(work.num_threads).run(static_cast<int>(num_shares), share_of);
}

}  // namespace echelon
