// Sends and receives of the rows of KeyTransfers, run by run.
#pragma once

#include "nn/context.h"

#include <vector>

namespace echelon {

/// Of one tensor and one pair of neighbours: rows of `sent` [B, T, ...] go to rank `to`, and rows of `received` arrive
/// from rank `from`.
struct RowPath {
  Tensor sent, received;
  int to = 0, from = 0;
};

/// Where the transfers under way are listed; it may be the same list.
struct PendingRows {
  std::vector<Pending>&sends, &receives;
};

inline void wait_for(std::vector<Pending>& all) {
  for (Pending& each : all) each.wait();
  all.clear();
}

/// Starts the transfers of sequence b. Both ranks of a pair start them in the same order.
inline void start_transfers(Comm& comm, const RowPath& path, std::int64_t b, const RowTransfer& rows,
                            const PendingRows& pending) {
  const auto run_of = [&](const Tensor& x, const RowRun& run) {
    const std::int64_t T = x.size(1), num_rows = x.size(0) * T;
    return x.reshaped({num_rows, x.num_elements() / num_rows}).rows(b * T + run.first, run.end - run.first);
  };
  for (const RowRun& run : rows.sent) pending.sends.push_back(comm.send(run_of(path.sent, run), path.to));
  for (const RowRun& run : rows.received)
    pending.receives.push_back(comm.receive(run_of(path.received, run), path.from));
}

}  // namespace echelon
