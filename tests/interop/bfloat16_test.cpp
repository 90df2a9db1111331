// Logits in bfloat16 against those in float64: tests/interop/bfloat16.json has the errors of transformers' own, made by
// make_bfloat16.py.
#include "checkpoint/convert_model.h"
#include "checkpoint/scratch_folder.h"
#include "files/file.h"
#include "interop/fixture.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace echelon::testing {
namespace {

const nlohmann::json& errors_of_transformers() {
  static const nlohmann::json errors =
      nlohmann::json::parse(read_text(ECHELON_SOURCE_DIR "/tests/interop/bfloat16.json"));
  return errors;
}

/// The mean squares of the errors of tokens, in ascending order.
std::vector<double> squares_of_tokens(const std::vector<double>& actual, const std::vector<double>& expected,
                                      std::int64_t vocab_size) {
  std::vector<double> squares(actual.size() / static_cast<std::size_t>(vocab_size));
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double error = actual[i] - expected[i];
    squares[i / static_cast<std::size_t>(vocab_size)] += error * error / static_cast<double>(vocab_size);
  }
  std::ranges::sort(squares);
  return squares;
}

/// Root mean square of the first `count` tokens.
double rms(const std::vector<double>& squares, std::size_t count) {
  const auto end = squares.begin() + static_cast<std::ptrdiff_t>(count);
  return std::sqrt(std::accumulate(squares.begin(), end, 0.0) / static_cast<double>(count));
}

class BFloat16Interop : public ::testing::TestWithParam<std::string> {};

// Claim (reference): In bfloat16 the error of logits is at most 1.1 times that of transformers' own.
// Bound: root mean square, all families; with experts of 4/5 of the tokens.
// Tests: BFloat16Interop
TEST_P(BFloat16Interop, LogitsAreAsNearAsThoseOfTransformers) {
  const ScratchFolder scratch;
  Fixture fixture(GetParam());
  convert_model(fixture.folder, scratch / "rounded", {.dtype = DType::bfloat16});
  fixture.folder = scratch / "rounded";
  constexpr std::int64_t num_batches = 16;
  const std::vector<double> expected = logits_of_batches(fixture, fixture.config(DType::float64), num_batches),
                            actual = logits_of_batches(fixture, fixture.config(DType::bfloat16), num_batches);
  ASSERT_EQ(actual.size(), expected.size());
  const ModelSpec model = fixture.config(DType::float64).model;
  const std::vector<double> squares = squares_of_tokens(actual, expected, model.vocab_size);
  const nlohmann::json& theirs = errors_of_transformers().at(GetParam());
  const double of_all = rms(squares, squares.size()) / theirs.at("all").get<double>(),
               of_most = rms(squares, squares.size() * 4 / 5) / theirs.at("most").get<double>();
  RecordProperty("ratio", fmt::format("{:.3f}, of most tokens {:.3f}", of_all, of_most));
  EXPECT_GT(of_most, 0);
  EXPECT_LE(of_most, 1.1);
  // Rounding decides which tokens choose another expert, and up to 7/8 of the error is that of one token in twenty.
  EXPECT_LE(of_all, model.mixture.num_experts > 0 ? 1.5 : 1.1);
}

std::vector<std::string> all_measured() {
  std::vector<std::string> names;
  for (const auto& [name, error] : errors_of_transformers().items()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, BFloat16Interop, ::testing::ValuesIn(all_measured()),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace echelon::testing
