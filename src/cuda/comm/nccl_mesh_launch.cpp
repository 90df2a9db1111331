// How a rank starts operations of NCCL's: alone or several in one launch.
#include "cuda/comm/nccl_mesh.h"
#include "cuda/comm/nccl_patience.h"

#include <algorithm>
#include <utility>

namespace echelon::cuda {

void NcclMesh::settle(const NcclLink& link, const std::function<std::string()>& what) {
  if (link.state() != ncclInProgress) return require_well(link);
  const Clock::time_point begin = Clock::now();
  for (int num_looks = 0; link.state() == ncclInProgress; rest(++num_looks)) {
    poll();
    if (seconds_since(begin) > timeout_seconds_)
      fail(fmt::format("ranks do not connect after {} s (comm.timeout_seconds); rank {} waits {} with {}",
                       timeout_seconds_, rank(), link.ranks(), what()));
  }
  require_well(link);
}

void NcclMesh::together(const std::function<void()>& start) {
  is_together_ = true;
  held_back_.clear();
  try {
    start();
    is_together_ = false;
    const std::vector<Launch> all = std::exchange(held_back_, {});
    if (!is_recording_) return launch_all(all);
    for (auto first = all.begin(), end = first; first != all.end(); first = end) {
      end = std::find_if(first, all.end(), [&](const Launch& each) { return &each.link != &first->link; });
      launch_all({first, end});
    }
  } catch (...) {
    is_together_ = false;
    throw;
  }
}

void NcclMesh::launch(Launch launch) {
  if (is_together_)
    held_back_.push_back(std::move(launch));
  else
    launch_all({std::move(launch)});
}

void NcclMesh::launch_all(const std::vector<Launch>& launches) {
  if (launches.empty()) return;
  poll();
  device_.compute_with_room().record(ready_);
  for (const Launch& each : launches) each.link.stream().wait(ready_);
  if (is_recording_ && last_recorded_ != nullptr) launches.front().link.stream().wait(last_recorded_->done);
  if (launches.size() > 1) nccl().group_start();
  ncclResult_t result = ncclSuccess;
  const Flight* failed = &launches.front().flight;
  const auto is_bad = [&] { return result != ncclSuccess && result != ncclInProgress; };
  for (const Launch& each : launches) {
    if (is_bad()) break;
    failed = &each.flight;
    result = each.enqueue(each.link.get(), each.link.stream().get());
  }
  if (launches.size() > 1)
    if (const ncclResult_t end = nccl().group_end(); !is_bad()) result = end;
  if (is_bad())
    throw Failure(
        fmt::format("{}: {} (NCCL; NCCL_DEBUG=INFO tells more)", describe(*failed), nccl().error_string(result)));
  for (const Launch& each : launches) {
    settle(each.link, [&] { return describe(each.flight); });
    each.link.stream().record(each.flight.done);
  }
  if (is_recording_) last_recorded_ = &launches.back().flight;
}

NcclMesh::Flight& NcclMesh::take_off(const Group& group, const Signature& signature) {
  if (reusable_.empty()) reusable_.push_back(std::make_unique<Flight>());
  std::deque<std::unique_ptr<Flight>>& flights = is_recording_ ? recorded_ : flights_;
  flights.push_back(std::move(reusable_.back()));
  reusable_.pop_back();
  Flight& flight = *flights.back();
  flight.signature = signature;
  flight.group = group;
  flight.is_waited_for = false;
  flight.is_replay = false;
  return flight;
}

}  // namespace echelon::cuda
