// Division of an operation's work over threads: contiguous ranges of rows, columns or blocks, so that nothing is summed across threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace echelon {

/// f(first, last) for ranges that cover [0, count), on up to num_threads threads if there is work for them. Ranges start at multiples of `granularity`.
struct Division {
  std::int64_t count = 0;
  std::int64_t work_per_item = 1;  // numbers touched
  std::int64_t granularity = 1;
  int num_threads = 1;
};

template <class F>
void divide(const Division& work, F&& f) {
  constexpr std::int64_t smallest_share = 1 << 14;  // numbers; below, starting a thread costs more than it does
  const std::int64_t num_grains = (work.count + work.granularity - 1) / work.granularity;
  const std::int64_t useful = std::min(num_grains, work.count * std::max<std::int64_t>(work.work_per_item, 1) / smallest_share);
  const std::int64_t num_shares = std::clamp<std::int64_t>(useful, 1, work.num_threads);
  if (num_shares == 1) {
    if (work.count > 0) f(std::int64_t{0}, work.count);
    return;
  }
#pragma omp parallel for num_threads(static_cast <int>(num_shares)) schedule(static, 1)
  for (std::int64_t share = 0; share < num_shares; ++share) {
    const std::int64_t first = num_grains * share / num_shares * work.granularity;
    const std::int64_t last = std::min(work.count, num_grains * (share + 1) / num_shares * work.granularity);
    f(first, last);
  }
}

}  // namespace echelon
