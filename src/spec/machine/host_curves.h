// Measured times of operations and collectives by size: the points of a machine file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace echelon {

/// One size of an operation. `amount` scales its time: flops for matmuls and attention, bytes read and written for all
/// others.
struct OperationPoint {
  std::int64_t m = 0, n = 0, k = 0;  // as in ops/cost.h
  double amount = 0;
  double core_seconds = 0;    // on one core, the others idle
  double busy_seconds = 0;    // on one core while the others do the same
  double shared_seconds = 0;  // on all cores together
  bool operator==(const OperationPoint&) const = default;
};

/// Of one operation and one format.
using OperationCurve = std::vector<OperationPoint>;
/// By operation ("matmul") and format ("float32").
using OperationCurves = std::map<std::string, std::map<std::string, OperationCurve>>;

/// A collective of otherwise idle thread ranks. `bytes`: of the full buffer, as in the trace.
struct CollectivePoint {
  std::int64_t num_ranks = 0;
  std::int64_t bytes = 0;
  double seconds = 0;  // from one to the next
  bool operator==(const CollectivePoint&) const = default;
};
/// By transport ("thread", "mpi") and operation ("all_reduce").
using CollectiveCurves = std::map<std::string, std::map<std::string, std::vector<CollectivePoint>>>;

/// Interpolates log(seconds / amount) linearly in the logarithms of the sizes, between the closest measured sizes
/// around (m, n, k). Outside the measured range the outermost point holds. `seconds` is one of the three. The curve has
/// at least one point.
[[nodiscard]] double interpolated_seconds(const OperationCurve& curve, const OperationPoint& size,
                                          double OperationPoint::*seconds);

}  // namespace echelon
