// The host that issues what a device does: kernel by kernel and collective by collective, each some seconds of its own.
// A device that is faster than its host waits for it. Kernels of d seconds, n of them issued every h seconds, end
//
//     n max(h, d) + min(h, d)
//
// after the host started. Let the device be free at D and the host at H. An action ends
// max(D + seconds, H + after_host_seconds), and the host is free again at H + issue_seconds. Both are linear in the
// max-plus algebra, so two values are enough for all kernels of an action.
#pragma once

#include "blueprint/call_trace.h"
#include "predict/software/overlap.h"
#include "predict/step/issue_time.h"

#include <algorithm>
#include <functional>
#include <vector>

namespace echelon {

/// Of a part's view and copy (HostRules::copies_parts); estimate: a small kernel that is issued without Python.
constexpr double part_copy_seconds = 5e-6;

/// Of the host of one device.
struct HostCosts {
  double kernel_seconds = 0;      // to issue a kernel
  double collective_seconds = 0;  // to issue a collective or a message
  HostRules rules = {};
  bool is_one_kernel = false;  // all that is computed
  bool counts_kernels = true;  // Echelon's, which are counted; of other software each operation is one
  [[nodiscard]] bool is_free() const { return kernel_seconds == 0 && collective_seconds == 0; }
};

using SecondsOfOperation = std::function<double(const OpRecord&)>;
using SecondsOfCommunication = std::function<double(const CommRecord&)>;

[[nodiscard]] IssueTime issue_time(const CallTrace& trace, const HostCosts& costs, const SecondsOfOperation& computes,
                                   const SecondsOfCommunication& communicates);

}  // namespace echelon
