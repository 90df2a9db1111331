// What is asked of a run from outside while it lasts: by signals, or by the caller of train().
#pragma once

#include <atomic>
#include <cstdint>

namespace echelon {

/// What a step's end leads to on all ranks: the highest request of any rank.
enum class RunRequest : std::uint8_t {
  none,
  save,       // a checkpoint, and training continues
  restart,    // a checkpoint, and the run ends in order to be started again
  interrupt,  // a checkpoint, and the run ends
};
[[nodiscard]] constexpr bool ends_run(RunRequest request) { return request >= RunRequest::restart; }

/// Set at any time, also by a signal handler.
struct RunRequests {
  std::atomic<RunRequest> end = RunRequest::none;  // restart or interrupt
  std::atomic<int> num_saves = 0;                  // that were asked for so far
};

/// The requests of a rank as values of which the sum over ranks tells the highest: fewer than 2^17 ranks ask for each.
[[nodiscard]] constexpr double summand_of(RunRequest request) {
  return request == RunRequest::none ? 0.0
                                     : static_cast<double>(std::int64_t{1} << 17 * (static_cast<int>(request) - 1));
}
[[nodiscard]] constexpr RunRequest highest_request(double sum) {
  for (const RunRequest request : {RunRequest::interrupt, RunRequest::restart, RunRequest::save})
    if (sum >= summand_of(request)) return request;
  return RunRequest::none;
}

}  // namespace echelon
