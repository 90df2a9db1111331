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

/// When the host that issues a device's kernels waits for the device, instead of issuing ahead of it.
struct HostRules {
  bool waits_for_kernels = false;    // after every kernel: CUDA_LAUNCH_BLOCKING=1
  bool waits_for_transfers = false;  // before what reads a message: torch.cuda.synchronize() after it
  bool updates_all_at_once = false;  // outside of passes one kernel goes over all tensors: Apex, torch's foreach
  bool copies_parts = false;  // of what is gathered or scattered, one by one: torch.distributed.all_gather of lists
  bool operator==(const HostRules&) const = default;
};

}  // namespace echelon
