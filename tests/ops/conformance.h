// What every backend must compute: operation by operation against the reference, in every format, at odd, empty and
// large sizes. The tests stand in conformance.cpp; whoever links it says which backends it is about:
// INSTANTIATE_TEST_SUITE_P(Name, OpsConformance, ...).
#pragma once

#include "numbers.h"
#include "ops/ops.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace echelon {

using Tensors = std::vector<Numbers>;
using OperationOnTensors = std::function<void(Ops& ops, Tensors& tensors)>;

/// A backend under test.
class OpsUnderTest {
 public:
  virtual ~OpsUnderTest() = default;
  /// What `operation` makes of a copy of `tensors`.
  [[nodiscard]] virtual Tensors run(const std::string& what, const Tensors& tensors,
                                    const OperationOnTensors& operation) = 0;
};

struct OpsVariant {
  DType dtype = DType::float32;
  std::function<std::unique_ptr<OpsUnderTest>()> make;  // null where this machine lacks it: the test is skipped
  double slack = 1;                                     // factor on what rounding allows
};
[[nodiscard]] inline std::string name_of_variant(const ::testing::TestParamInfo<OpsVariant>& info) {
  return std::string(name_of(info.param.dtype));
}

class OpsConformance : public ::testing::TestWithParam<OpsVariant> {
 protected:
  const DType dtype = GetParam().dtype;
  const DType sums = accumulate_dtype(dtype);

  void SetUp() override {
    backend_ = GetParam().make();
    if (!backend_) GTEST_SKIP() << "this machine has no such backend";
  }

  [[nodiscard]] Numbers random(Sizes sizes, unsigned seed, double spread = 1.0) const {
    return Numbers::random(dtype, sizes, seed, spread);
  }
  [[nodiscard]] Numbers statistics(Sizes sizes) const { return {sums, sizes}; }
  /// Runs `operation` on copies of `tensors` with the reference and with the backend, and compares every tensor
  /// afterwards, but for the last ones if they are scratch.
  void compare(const std::string& what, const Tensors& tensors, const OperationOnTensors& operation,
               std::size_t num_scratch = 0) const;
  [[nodiscard]] Tensors run(const Tensors& tensors, const OperationOnTensors& operation) const {
    return backend_->run("", tensors, operation);
  }

  /// Formats that numbers are converted from and to.
  [[nodiscard]] std::vector<DType> other_dtypes() const {
    std::vector<DType> all = {DType::float32, DType::float64, DType::bfloat16};
    if (dtype == DType::float16) all.push_back(dtype);
    return all;
  }
  /// Formats that a gradient of a weight may have.
  [[nodiscard]] std::vector<DType> gradient_dtypes() const {
    return dtype == sums ? std::vector{dtype} : std::vector{dtype, sums};
  }

 private:
  std::unique_ptr<OpsUnderTest> backend_;
};

}  // namespace echelon
