// The rows of experts, for the operations that share them: the check and a sample of `offsets`.
#pragma once

#include "ops/checker.h"
#include "ops/operations/experts.h"
#include "ops/sample.h"

namespace echelon {

inline void check_offsets(const ArgumentChecker& must, const Tensor& offsets) {
  must.dtype("offsets", offsets, DType::int32);
  must.dims("offsets", offsets, 1);
  must.that(offsets.size(0) >= 2 && offsets.size(0) <= most_experts + 1, "offsets", offsets,
            "be of one expert or more, and of 8192 at most");
}

inline constexpr std::int64_t num_sample_experts = 8;
/// The same number of rows for each expert.
[[nodiscard]] inline Tensor sample_offsets(SampleOperands& s, std::int64_t num_rows) {
  return s.integers({num_sample_experts + 1}, [=](std::int64_t e) { return num_rows * e / num_sample_experts; });
}

}  // namespace echelon
