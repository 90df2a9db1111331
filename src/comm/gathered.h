// Gathers a value of every rank on all ranks.
#pragma once

#include "comm/mesh.h"

#include <cstdint>
#include <type_traits>
#include <vector>

namespace echelon {

/// By rank, in whatever order the mesh's axes are. Collective over the mesh, whose tensors are in the host's memory.
template <class T>
[[nodiscard]] std::vector<T> gathered(Mesh& mesh, T own) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(std::int32_t) == 0);
  constexpr auto words = static_cast<std::int64_t>(sizeof(T) / sizeof(std::int32_t));
  const auto tensor = [](T* first, std::int64_t count) {
    return Tensor(reinterpret_cast<std::byte*>(first), DType::int32, {count * words});
  };
  const Group world = {world_axes};
  const std::vector<int> ranks = mesh.shape().ranks_of(world, mesh.rank());  // of the group's members
  std::vector<T> by_member(ranks.size()), by_rank(ranks.size());
  mesh.comm(world)
      .all_gather(tensor(by_member.data(), static_cast<std::int64_t>(ranks.size())), tensor(&own, 1))
      .wait();
  for (std::size_t i = 0; i < ranks.size(); ++i) by_rank[static_cast<std::size_t>(ranks[i])] = by_member[i];
  return by_rank;
}

}  // namespace echelon
