// How the ranks' arenas are registered with NCCL. It writes to peers at the offset of its own buffers (symmetric
// windows), and does not check that these are equal, so the ranks compare their plans first. Pipeline stages have
// different plans: a communicator across them copies through its buffers, as without registration.
#include "comm/gathered.h"
#include "cuda/comm/nccl_mesh.h"

#include <algorithm>
#include <exception>

namespace echelon::cuda {
namespace {

/// Of a rank, as all ranks see it.
struct Offer {
  std::int64_t num_bytes = 0;
  std::uint64_t plan = 0;
  std::int64_t can_register = 0;
  bool operator==(const Offer&) const = default;
};

}  // namespace

std::string NcclMesh::register_arena(const RegisteredArena& arena, const std::string& reason) {
  const std::vector<Offer> offers = gathered(
      host_, Offer{.num_bytes = arena.num_bytes, .plan = arena.plan, .can_register = arena.can_register ? 1 : 0});
  const auto refuses = [](const Offer& offer) { return offer.can_register == 0; };
  if (const auto refusing = std::find_if(offers.begin(), offers.end(), refuses); refusing != offers.end())
    return fmt::format("NCCL copies through buffers of its own: {}",
                       !reason.empty() ? reason : fmt::format("rank {} cannot register", refusing - offers.begin()));
  registered_ = arena.base;
  std::size_t num_registered = 0;
  for (const std::vector<int>& ranks : connected_) {
    const auto is_alike = [&](int member) {
      return offers[static_cast<std::size_t>(member)] == offers[static_cast<std::size_t>(rank())];
    };
    if (!std::all_of(ranks.begin(), ranks.end(), is_alike)) continue;
    NcclLink& link = *links_.at({ranks, Use::collectives});
    constexpr const char* what = "the registration of an arena (NCCL_WIN_ENABLE=0 does without)";
    if (const ncclResult_t result = link.register_memory(arena.base, arena.num_bytes); result != ncclInProgress)
      check(result, what);
    settle(link, [] { return what; });
    if (link.is_registered()) ++num_registered;
  }
  return fmt::format("NCCL: the arena is registered with {} of {} groups of ranks", num_registered, connected_.size());
}

void NcclMesh::deregister_arena(const std::byte* base) noexcept {
  if (registered_ == nullptr || registered_ != base) return;
  registered_ = nullptr;
  try {
    device_.finish();
    for (NcclLink* const link : all_links())
      while (link->get() != nullptr && !link->stream().is_idle()) poll();
  } catch (const std::exception&) {
    give_up();
  }
  for (NcclLink* const link : all_links()) link->deregister_memory();
}

}  // namespace echelon::cuda
