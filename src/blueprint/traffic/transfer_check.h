// Proves that what layers send within a pass cannot deadlock without any buffering of sends: hops of rings, gathers,
// exchanges of heads, sums over tp. Of each rank the starts and waits, in order:
//
//     an event            after the one before it on its rank: a wait blocks, a start does not
//     wait of a transfer  after the start of its counterpart
//     of a collective     after its starts on all ranks of the group
//
// A graph without a cycle proves it for the whole step. Ranks of one pipeline rank run one program (schedule/check),
// and a pass waits for all that it starts. So a cycle through several passes would be one of that program. Documents
// only take transfers away, on both ends.
#pragma once

#include "blueprint/blueprint.h"

#include <map>
#include <string>
#include <vector>

namespace echelon {

/// What each rank does in a pass that they enter together.
using RankEvents = std::map<int, std::vector<TraceEvent>>;

/// A sentence for each fault, with the ranks: a deadlock, a transfer without its counterpart, or one that nothing waits
/// for. Empty: there is none.
[[nodiscard]] std::vector<std::string> check_transfers(const MeshShape& mesh, const RankEvents& ranks);

/// Of the passes of all kinds of units, with the first action that has each; on one of ranks that only differ in their
/// sequences. Takes milliseconds per rank of a cp x tp group, and no more for more such groups or pipeline ranks.
[[nodiscard]] std::vector<std::string> check_transfers(const Blueprint& blueprint);

}  // namespace echelon
