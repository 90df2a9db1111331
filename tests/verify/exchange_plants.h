// Injected faults of context parallelism where keys are gathered or ranks exchange heads: of what is gathered,
// exchanged and summed over the ranks of a cp group.
#pragma once

#include "verify/plants.h"

namespace echelon::testing {

/// What a rank has in place of the keys and values of the rank `distance` places before it.
enum class InPlace : std::uint8_t { zeros, keys_before, own };
/// In the forward or the backward pass; keys_before: those of the kv head before, which were gathered last.
[[nodiscard]] Seed gathered_keys(InPlace in_place, int distance, bool is_backward);
/// Rows of keys that travel alone, because others are not seen, do not arrive.
[[nodiscard]] Seed lost_key_rows();
/// Of the sum of the gradients of keys and values over the ranks, the part from the rank `distance` places after is
/// missing; 0: all but the own part are.
[[nodiscard]] Seed missing_gradients(int distance);
/// Each rank gets the sum of the next rank's keys.
[[nodiscard]] Seed gradients_of_next_rank();

/// The queries, keys and values of the tokens of rank `from` of the exchange do not arrive; or, coming home, its heads.
[[nodiscard]] Seed lost_part_of_exchange(int from, bool comes_home);
/// The heads of the first two ranks are exchanged when results come home.
[[nodiscard]] Seed exchanged_results();
/// Of ranks that share a kv head, the gradients of one count.
[[nodiscard]] Seed gradients_of_one_replica(int replica);

/// Queries are masked like those of the next rank.
[[nodiscard]] Seed ranges_of_next_rank();
/// What was gathered is not put in ascending order of positions.
[[nodiscard]] Seed rows_in_rank_order();

}  // namespace echelon::testing
