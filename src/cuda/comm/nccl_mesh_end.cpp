// How a rank's communicators end: together with their peers', or at once.
#include "cuda/comm/nccl_mesh.h"
#include "cuda/comm/nccl_patience.h"

#include <algorithm>
#include <exception>

namespace echelon::cuda {
namespace {

// NCCL frees aborted communicators in a thread of its own, and says nothing at its end: it is given a while after the
// last of their kernels.
void await_reclaim(const std::vector<NcclLink*>& links) {
  constexpr double most_seconds = 2;
  constexpr auto after_kernels = std::chrono::milliseconds(100);
  const auto is_busy = [](NcclLink* link) { return cudaStreamQuery(link->stream().get()) == cudaErrorNotReady; };
  const auto begin = std::chrono::steady_clock::now();
  while (std::any_of(links.begin(), links.end(), is_busy) && seconds_since(begin) < most_seconds)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(after_kernels);
}

}  // namespace

NcclMesh::~NcclMesh() {
  device_.watch(nullptr);
  if (std::uncaught_exceptions() > 0) {
    give_up();
    return;
  }
  try {
    const auto is_under_way = [](const std::unique_ptr<Flight>& flight) { return !flight->done.is_reached(); };
    while (std::any_of(flights_.begin(), flights_.end(), is_under_way)) poll();
    finalize();
  } catch (const std::exception&) {
    give_up();
  }
  for (; !split_.empty(); split_.pop_back()) links_.erase({split_.back(), Use::collectives});
}

std::vector<NcclLink*> NcclMesh::all_links() const {
  std::vector<NcclLink*> all;
  for (const auto& [ranks, link] : links_) all.push_back(link.get());
  for (const auto& [ranks, link] : transfer_links_) all.push_back(link.get());
  return all;
}

// A communicator that is destroyed before it is finalized does so in a thread of NCCL's, while its stream and the
// memory are freed. The ranks come here at different times, so the wait is one for the slowest of them.
void NcclMesh::finalize() {
  const std::vector<NcclLink*> links = all_links();
  if (links.empty()) return;
  for (NcclLink* const link : links)
    while (!link->stream().is_idle()) poll();
  nccl().group_start();
  for (NcclLink* const link : links) (void)link->finalize();  // one that fails is aborted
  nccl().group_end();
  const auto is_under_way = [](const NcclLink* link) { return link->state() == ncclInProgress; };
  const Clock::time_point begin = Clock::now();
  for (int num_looks = 0; std::any_of(links.begin(), links.end(), is_under_way); rest(++num_looks))
    if (poll(), seconds_since(begin) > timeout_seconds_) return give_up();
}

// A communicator's kernel may be queued after one of another communicator, so all are aborted before any is waited for:
// within a group ncclCommAbort aborts at the call, and NCCL waits at the end of the group. The call waits for an NCCL
// thread that is still enqueuing, which may be queued after the kernels of all others, so that one is last. NCCL also
// waits until graphs are destroyed.
void NcclMesh::give_up() noexcept {
  const std::vector<NcclLink*> links = all_links();
  const auto is_alive = [](const NcclLink* link) { return link->get() != nullptr; };
  if (std::none_of(links.begin(), links.end(), is_alive)) return;
  nccl().group_start();
  for (const bool is_last_chance : {false, true})
    for (NcclLink* const link : links)
      if (is_last_chance || link->state() != ncclInProgress) link->abort();
  if (drop_graphs_) drop_graphs_();
  if (nccl().group_end() == ncclInProgress) await_reclaim(links);
}

}  // namespace echelon::cuda
