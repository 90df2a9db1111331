// Operations on operands that have left the closest caches.
#include "measure/operations/measure_distances.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

TEST(MeasureDistances, UpToThePoolByKindAndFormat) {
  const DistanceCurves curves =
      measure_distances({.num_rounds = 1, .sample_seconds = 1e-6, .pool_bytes = std::int64_t{8} << 20U});
  for (const char* kind : {"matmul", "attention_backward", "adamw", "rms_norm"})
    for (const char* format : {"float32", "bfloat16"}) {
      SCOPED_TRACE(std::string(kind) + " " + format);
      const std::vector<DistancePoint>& curve = curves.at(kind).at(format);
      ASSERT_EQ(curve.size(), 2);
      EXPECT_EQ(curve[0].distance, 2 << 20);
      EXPECT_EQ(curve[1].distance, 8 << 20);
      for (const DistancePoint& point : curve) {
        EXPECT_GT(point.busy_seconds, 0);
        EXPECT_GT(point.shared_seconds, 0);
      }
    }
  EXPECT_TRUE(measure_distances({.pool_bytes = std::int64_t{1} << 20U}).empty());
}

}  // namespace
}  // namespace echelon
