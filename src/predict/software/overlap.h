// What a step's software and devices do at the same time. Lanes of a rank: compute, a wire to and from each
// neighbouring stage, collectives of the data axes; what is hidden runs on its lane at the same time as compute, all
// else keeps compute waiting until it has ended.
#pragma once

namespace echelon {

struct OverlapRules {
  bool hides_transfers = true;            // between stages: a rank computes on while its results travel
  bool hides_gradient_reductions = true;  // over the data axes
  bool hides_parameter_gathers = true;    // of ZeRO: before use, and after the update
  /// What compute takes longer, as a factor, while collectives of the data axes or transfers run on the same device:
  /// they take multiprocessors and bandwidth.
  double slowdown_by_collectives = 1;
  double slowdown_by_transfers = 1;
  bool operator==(const OverlapRules&) const = default;
};

}  // namespace echelon
