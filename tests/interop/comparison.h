// Runs of Echelon on a fixture against the oracle's values.
#pragma once

#include "interop/fixture.h"

namespace echelon::testing {

struct Precision {
  DType dtype;
  double values, losses;  // tolerances of logits, loss and gradients, and of the losses of training
};

using TensorValues = std::map<std::string, std::vector<double>>;

/// max |a - b| / max(max |b|, floor); infinite if the sizes differ.
[[nodiscard]] double error(const std::vector<double>& actual, const std::vector<double>& expected, double floor);

/// Every tensor, with the root mean square of all gradients as floor.
void expect_gradients(const ModelSpec& model, const TensorValues& expected, const TensorCollection& gradients,
                      double tolerance);

/// Logits, loss and every gradient.
void expect_first_step(const Fixture& fixture, const Precision& precision);

/// Losses and norms of 20 steps of AdamW, and in float64 the weights after them.
void expect_training(const Fixture& fixture, const Precision& precision);

}  // namespace echelon::testing
