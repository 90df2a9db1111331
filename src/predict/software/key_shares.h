// Rows of keys that travel where documents or windows leave some out (context/key_transfers.h), of those that a plan
// has.
#pragma once

#include "blueprint/call_trace.h"
#include "spec/config/run_config.h"

#include <vector>

namespace echelon {

/// Over all rows. By hop 1 ... n - 1 of a ring, or one for keys that are gathered.
struct RowShares {
  std::vector<double> slowest;  // of the rank with the most, which the others wait for
  std::vector<double> mean;     // over the ranks
};

/// Of blocks with one window.
struct WindowShares {
  RowShares keys, gradients;
};

struct KeyShares {
  std::vector<WindowShares> of_windows;  // by LayerOptions::windows; empty where all travel

  [[nodiscard]] bool skip_rows() const { return !of_windows.empty(); }
};

/// Attention's transfers in the trace of a pass become those of the rows that travel.
void send_shares(const KeyShares& shares, const KeyExchange& exchange, CallTrace& trace);

}  // namespace echelon
