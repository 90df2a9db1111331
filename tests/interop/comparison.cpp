#include "interop/comparison.h"

#include "checkpoint/hf/weight_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace echelon::testing {
namespace {

double largest(const std::vector<double>& numbers) {
  double most = 0;
  for (const double number : numbers) most = std::max(most, std::abs(number));
  return most;
}

}  // namespace

double error(const std::vector<double>& actual, const std::vector<double>& expected, double floor) {
  if (actual.size() != expected.size()) return INFINITY;
  double difference = 0;
  for (std::size_t i = 0; i < actual.size(); ++i)
    if (!(std::abs(actual[i] - expected[i]) <= difference)) difference = std::abs(actual[i] - expected[i]);
  return difference / std::max(largest(expected), floor);
}

namespace {

/// The part of a file's tensor that a parameter is, in the parameter's own order.
std::vector<double> cut_out(const std::vector<double>& tensor, const PlacedParameter& parameter) {
  const FilePlace& place = parameter.place;
  const int num_dims = parameter.sizes.num_dims();
  const std::int64_t rows = parameter.sizes[num_dims == 3 ? 1 : 0], cols = num_dims == 1 ? 1 : parameter.sizes[-1];
  const std::int64_t file_cols = place.sizes.num_dims() == 1 ? 1 : place.sizes[1];
  std::vector<double> part;
  place.rows.for_each_block({0, rows}, [&](Range block, std::int64_t in_file) {
    for (std::int64_t i = in_file; i < in_file + block.count; ++i)
      for (std::int64_t j = 0; j < cols; ++j)
        part.push_back(tensor[static_cast<std::size_t>(place.transposed ? j * file_cols + i : i * file_cols + j)]);
  });
  return part;
}

/// Those of the expected numbers whose names have the prefix, which are compared with `tensors`.
struct Compared {
  std::string prefix;
  double floor;
};

double num_values(const TensorValues& expected, const std::string& prefix) {
  double count = 0;
  for (const auto& [name, numbers] : expected)
    if (name.starts_with(prefix)) count += static_cast<double>(numbers.size());
  return count;
}

void expect_tensors(const ModelSpec& model, const TensorValues& expected, const Compared& compared,
                    const TensorCollection& tensors, double tolerance) {
  double compared_count = 0;
  const auto places = placed_parameters(model);
  for (const auto& [name, actual] : tensors.tensors()) {
    const PlacedParameter& parameter = places.at(name);
    std::vector<double> of_it;
    for (const std::string& tensor : parameter.tensors()) {
      const std::vector<double> part = cut_out(expected.at(compared.prefix + tensor), parameter);
      of_it.insert(of_it.end(), part.begin(), part.end());
    }
    EXPECT_LE(error(actual, of_it, compared.floor), tolerance) << name;
    compared_count += static_cast<double>(actual.size());
  }
  EXPECT_EQ(compared_count, num_values(expected, compared.prefix)) << compared.prefix << ": some were not compared";
}

}  // namespace

void expect_gradients(const ModelSpec& model, const TensorValues& expected, const TensorCollection& gradients,
                      double tolerance) {
  double squares = 0;
  for (const auto& [name, numbers] : expected)
    if (name.starts_with("grad."))
      for (const double number : numbers) squares += number * number;
  expect_tensors(model, expected, {"grad.", std::sqrt(squares / num_values(expected, "grad."))}, gradients, tolerance);
}

void expect_first_step(const Fixture& fixture, const Precision& precision) {
  Outcome outcome;
  run(fixture, fixture.config(precision.dtype), {0.0}, outcome);
  EXPECT_LE(error(outcome.logits, fixture.expected.at("logits"), 0), precision.values);
  EXPECT_LE(error(outcome.losses, fixture.expected.at("loss"), 0), precision.values);
  expect_gradients(fixture.model, fixture.expected, outcome.gradients, precision.values);
}

void expect_training(const Fixture& fixture, const Precision& precision) {
  RunConfig config = fixture.config(precision.dtype);
  config.training.global_batch_size = 4;
  config.training.max_norm = 1.0;
  Outcome outcome;
  const std::vector<double>& rates = fixture.expected.at("train.lr");
  run(fixture, config, rates, outcome);
  EXPECT_LE(error(outcome.losses, fixture.expected.at("train.loss"), 0), precision.losses);
  EXPECT_LE(error(outcome.grad_norms, fixture.expected.at("train.grad_norm"), 0), 10 * precision.losses);
  if (precision.dtype == DType::float64)  // key biases, whose gradients are rounding alone, differ by up to 1e-10
    expect_tensors(fixture.model, fixture.expected, {"train.weight.", largest(rates)}, outcome.weights, 1e-9);
}

}  // namespace echelon::testing
