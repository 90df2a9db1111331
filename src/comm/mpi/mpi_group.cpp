#include "comm/mpi/mpi_group.h"

namespace echelon {
namespace {

constexpr std::size_t num_remembered = 64;  // operations of a channel

// FNV-1a over the ranks.
std::uint64_t hash_of(const std::vector<int>& ranks) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const int rank : ranks)
    for (unsigned shift = 0; shift < 32; shift += 8)
      hash = (hash ^ (static_cast<std::uint32_t>(rank) >> shift & 0xffU)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace

MpiGroup::MpiGroup(std::int64_t run, std::string name, std::vector<int> ranks, int place)
    : run_(run), name_(std::move(name)), ranks_(std::move(ranks)), place_(place), hash_(hash_of(ranks_)) {}

OperationId MpiGroup::start(std::uint64_t channel, const Signature& signature) {
  Channel& state = channels_[channel];
  const std::int64_t sequence = state.num_started++;
  if (state.last.size() < num_remembered)
    state.last.push_back(signature);
  else
    state.last[static_cast<std::size_t>(sequence) % num_remembered] = signature;
  return {.group = hash_, .channel = channel, .sequence = sequence, .run = run_};
}

bool MpiGroup::has_started(const OperationId& id) const {
  const auto found = channels_.find(id.channel);
  return found != channels_.end() && id.sequence < found->second.num_started;
}

std::optional<Signature> MpiGroup::started(const OperationId& id) const {
  const auto found = channels_.find(id.channel);
  if (!has_started(id) || id.sequence + static_cast<std::int64_t>(num_remembered) < found->second.num_started)
    return std::nullopt;
  return found->second.last[static_cast<std::size_t>(id.sequence) % num_remembered];
}

std::string MpiGroup::describe(const OperationId& id, const Signature& signature, int rank) const {
  if (id.channel == 0) return to_string(signature);
  const int source = ranks_[static_cast<std::size_t>((id.channel - 1) >> 32U)],
            destination = ranks_[static_cast<std::size_t>((id.channel - 1) & 0xffffffffU)];
  return rank == source
             ? fmt::format("send of {} {} to rank {}", signature.num_elements, name_of(signature.dtype), destination)
             : fmt::format("receive of {} {} from rank {}", signature.num_elements, name_of(signature.dtype), source);
}

}  // namespace echelon
