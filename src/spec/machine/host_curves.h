// What operations and collectives took on this machine, by their sizes: the measured points of a machine file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace echelon {

/// One size of an operation. `amount` is what its time is compared by: flops of products and of attention, bytes read
/// and written of all else.
struct OperationPoint {
  std::int64_t m = 0, n = 0, k = 0;  // as in ops/cost.h
  double amount = 0;
  double core_seconds = 0;    // on one core, the others idle
  double busy_seconds = 0;    // on one core, the others at the same
  double shared_seconds = 0;  // on all cores together
  bool operator==(const OperationPoint&) const = default;
};

/// Of one operation and one format.
using OperationCurve = std::vector<OperationPoint>;
/// By operation ("matmul") and format ("float32").
using OperationCurves = std::map<std::string, std::map<std::string, OperationCurve>>;

/// A collective of thread ranks that do nothing else. `bytes`: of the full buffer, as in the trace.
struct CollectivePoint {
  std::int64_t num_ranks = 0;
  std::int64_t bytes = 0;
  double seconds = 0;  // from one to the next
  bool operator==(const CollectivePoint&) const = default;
};
/// By transport ("thread", "mpi") and operation ("all_reduce").
using CollectiveCurves = std::map<std::string, std::map<std::string, std::vector<CollectivePoint>>>;

/// Of the measured sizes the nearest around (m, n, k), joined by straight lines of log(seconds / amount) over the
/// logarithms of the sizes; beyond them the outermost. `seconds` is one of the three. The curve has at least one point.
[[nodiscard]] double interpolated_seconds(const OperationCurve& curve, const OperationPoint& size,
                                          double OperationPoint::*seconds);

}  // namespace echelon
