// When a rank posts its receives: as the programs of its senders demand.
//
// A message is produced when the compute action that writes it ends, in the time in which every pass takes one unit (a
// fused backward two) and messages none. Its receive is posted before the action that the receiver then computes, and
// one action earlier still, so that the transfer overlaps with that one. So receives from one source are posted in the
// order of its sends, a sender never waits for a receiver that computes something else first, and nothing can deadlock
// even if no send is buffered: everything that a wait waits for lies at an earlier time. In GPipe and 1F1B that is one
// compute action ahead of the consumer, as a rule.
#pragma once

#include "schedule/schedule.h"

#include <vector>

namespace echelon {

/// [rank][position]: the receives (kind, stage, microbatch) to be posted before schedule.ranks[rank][position]. Stages
/// on one rank exchange no message. Throws Failure for a schedule in which a rank waits forever.
[[nodiscard]] std::vector<std::vector<Program>> receives_to_post(const Schedule& schedule);

}  // namespace echelon
