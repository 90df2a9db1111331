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

/// How much longer an operation takes for each byte of an operand after whose last use so many other bytes were used.
/// Sizes are timed on operands of close_bytes.
struct DistancePoint {
  std::int64_t distance = 0;  // in bytes
  double busy_seconds = 0;    // per byte, as those of OperationPoint
  double shared_seconds = 0;
  bool operator==(const DistancePoint&) const = default;
};
inline constexpr std::int64_t close_bytes = 512 << 10;
/// By operation and format, with ascending distances.
using DistanceCurves = std::map<std::string, std::map<std::string, std::vector<DistancePoint>>>;

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
/// Linear in the logarithm of the distance, from 0 at close_bytes; beyond the last point that one holds.
[[nodiscard]] double interpolated_seconds(const std::vector<DistancePoint>& curve, double distance,
                                          double DistancePoint::*seconds);

}  // namespace echelon
