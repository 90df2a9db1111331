// How the keys and values of the ranks of a cp group reach each other's queries.
//
//   ring          keys go from rank to rank (Liu et al. 2023, arXiv:2310.01889)
//   all_gather    every rank gathers all keys (Llama 3 Team 2024, arXiv:2407.21783)
//   ulysses       ranks exchange tokens for heads: each attends with some heads to the whole sequence (Jacobs et al.
//                 2023, arXiv:2309.14509)
//   ulysses_ring  u neighbours exchange heads, and the groups of u ranks are a ring (Fang and Zhao 2024,
//                 arXiv:2405.07719)
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>

namespace echelon {

enum class ContextMethod : std::uint8_t { ring, all_gather, ulysses, ulysses_ring };

[[nodiscard]] constexpr std::string_view name_of(ContextMethod method) {
  switch (method) {
    case ContextMethod::ring: return "ring";
    case ContextMethod::all_gather: return "all_gather";
    case ContextMethod::ulysses: return "ulysses";
    case ContextMethod::ulysses_ring: return "ulysses_ring";
  }
  return "";
}

/// A method with its degrees: cp = head_ranks x groups.
struct KeyExchange {
  ContextMethod method = ContextMethod::ring;
  int head_ranks = 1;  // u: neighbours that exchange heads; cp in ulysses, 1 where heads stay
  auto operator<=>(const KeyExchange&) const = default;
};

}  // namespace echelon
