// When a rank posts its receives, which depends on the programs of its senders.
//
// A message is produced when the compute action that writes it ends. In this model a pass takes one unit of time (a
// fused backward two), and messages take none. Its receive is posted before the action that the receiver then computes,
// and one action earlier still, so that the transfer overlaps with that one. So receives from one source are posted in
// the order of its sends, and a sender never waits for a receiver that computes something else first. Nothing can
// deadlock even if no send is buffered, since every wait is for an earlier time. In GPipe and 1F1B that is usually one
// compute action ahead of the consumer.
#pragma once

#include "schedule/schedule.h"

#include <vector>

namespace echelon {

/// [rank][position]: the receives (kind, stage, microbatch) to be posted before schedule.ranks[rank][position]. Stages
/// on one rank exchange no message. Throws Failure for a schedule in which a rank waits forever.
[[nodiscard]] std::vector<std::vector<Program>> receives_to_post(const Schedule& schedule);

}  // namespace echelon
