// How context parallelism distributes the tokens of a sequence over the ranks of a cp group.
//
//   headtail      2 cp chunks that differ by a token at most; rank r holds chunks r and 2 cp - 1 - r (Llama 3 Team
//   2024,
//                 arXiv:2407.21783, section 3.3.2)
//   none          cp contiguous chunks
//   striped       position p is on rank p mod cp (Brandon et al. 2023, arXiv:2311.09431)
//   per_document  headtail within every document
//   packed        short documents on one rank each, long ones split, so that pairs (query, key) are even
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace echelon {

enum class LoadBalancer : std::uint8_t { headtail, none, striped, per_document, packed };

inline constexpr std::array load_balancers = {LoadBalancer::headtail, LoadBalancer::none, LoadBalancer::striped,
                                              LoadBalancer::per_document, LoadBalancer::packed};

[[nodiscard]] constexpr std::string_view name_of(LoadBalancer balancer) {
  switch (balancer) {
    case LoadBalancer::headtail: return "headtail";
    case LoadBalancer::none: return "none";
    case LoadBalancer::striped: return "striped";
    case LoadBalancer::per_document: return "per_document";
    case LoadBalancer::packed: return "packed";
  }
  return "";
}

/// The token lists depend on the documents of the sequence.
[[nodiscard]] constexpr bool reads_documents(LoadBalancer balancer) {
  return balancer == LoadBalancer::per_document || balancer == LoadBalancer::packed;
}

}  // namespace echelon
