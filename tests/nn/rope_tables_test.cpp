// RoPE frequencies against the definitions, wavelength by wavelength.
#include "nn/decoder/rope_tables.h"

#include "nn/bench.h"
#include "nn/models.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <numbers>
#include <sstream>
#include <string>

namespace echelon::test {
namespace {

ModelSpec llama3_like() {
  ModelSpec model = small_llama();
  model.head_dim = 128;
  model.rope_theta = 500000.0;
  model.rope_scaling = RopeScaling{};
  return model;
}

std::vector<double> rope_frequencies(const ModelSpec& model) {
  return rotation_of(model, model.ropes()[0], 16).frequencies;
}

TEST(RopeTables, FrequenciesFallGeometrically) {
  ModelSpec model = llama3_like();
  model.rope_scaling.reset();
  const std::vector<double> frequencies = rope_frequencies(model);
  ASSERT_EQ(frequencies.size(), 64U);
  EXPECT_EQ(frequencies[0], 1.0);
  for (std::size_t i = 1; i < 64; ++i)
    EXPECT_NEAR(frequencies[i] / frequencies[i - 1], std::pow(500000.0, -1.0 / 64.0), 1e-14);
}

// Grattafiori et al. 2024 (arXiv:2407.21783): 8192 positions stretched by 8. Below a wavelength of 8192 / 4 nothing
// changes, above 8192 / 1 frequencies are divided by 8, and between the two the interpolation is linear in the number
// of turns and continuous at both ends.
TEST(RopeTables, Llama3ScalingStretchesLongWavelengths) {
  const ModelSpec model = llama3_like();
  ModelSpec plain = model;
  plain.rope_scaling.reset();
  const std::vector<double> frequencies = rope_frequencies(model), unscaled = rope_frequencies(plain);
  int num_between = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    const double wavelength = 2.0 * std::numbers::pi / unscaled[i];
    const double ratio = frequencies[i] / unscaled[i];
    if (wavelength < 2048.0) {
      EXPECT_EQ(ratio, 1.0);
    } else if (wavelength > 8192.0) {
      EXPECT_EQ(ratio, 1.0 / 8.0);
    } else {
      ++num_between;
      EXPECT_NEAR(ratio, 1.0 / 8.0 + 7.0 / 8.0 * (8192.0 / wavelength - 1.0) / 3.0, 1e-12);
    }
  }
  EXPECT_GT(num_between, 3);
}

struct RopeCase {
  std::int64_t seq_len;
  double partial_rotary_factor;
  RopeScaling scaling;
};

// make_rope_frequencies.py has the same.
std::map<std::string, RopeCase> rope_cases() {
  using enum RopeType;
  const std::vector<double> rising = {1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.5, 8.0}, falling(rising.rbegin(), rising.rend());
  RopeScaling plain;
  plain.original_max_position_embeddings = 4096;
  const auto with = [&](const std::function<void(RopeScaling&)>& set) {
    RopeScaling scaling = plain;
    set(scaling);
    return scaling;
  };
  const auto longrope_ = with(
      [&](RopeScaling& s) { s.rope_type = longrope, s.factor = 8, s.short_factor = rising, s.long_factor = falling; });
  return {{"linear", {1024, 1, with([](RopeScaling& s) { s.rope_type = linear, s.factor = 2.5; })}},
          {"dynamic", {32768, 1, with([](RopeScaling& s) { s.rope_type = dynamic, s.factor = 4; })}},
          {"llama3", {1024, 1, plain}},
          {"yarn", {1024, 1, with([](RopeScaling& s) { s.rope_type = yarn, s.factor = 8; })}},
          {"yarn with fractions", {1024, 1, with([](RopeScaling& s) {
                                     s.rope_type = yarn, s.factor = 8, s.truncate = false, s.beta_fast = 20,
                                     s.beta_slow = 2;
                                   })}},
          {"yarn with mscale", {1024, 1, with([](RopeScaling& s) {
                                  s.rope_type = yarn, s.factor = 40, s.mscale = 1, s.mscale_all_dim = 0.5;
                                })}},
          {"yarn with a factor",
           {1024, 1, with([](RopeScaling& s) { s.rope_type = yarn, s.factor = 8, s.attention_factor = 1.25; })}},
          {"longrope, short", {4096, 0.5, longrope_}},
          {"longrope, long", {4097, 0.5, longrope_}}};
}

// Claim (reference): Each kind of RoPE has the frequencies and the attention factor of
//   transformers, whose code was run in float64.
// Bound: 1e-12, relative.
// Tests: RopeTables
TEST(RopeTables, AreThoseOfTransformers) {
  ModelSpec model = small_llama();
  model.head_dim = 32;
  std::map<std::string, RopeCase> cases = rope_cases();
  std::ifstream file(ECHELON_SOURCE_DIR "/tests/nn/rope_frequencies.csv");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string name, number;
    std::getline(fields, name, ';');
    ASSERT_TRUE(cases.contains(name)) << name;
    std::vector<double> expected;
    while (std::getline(fields, number, ';')) expected.push_back(std::stod(number));
    const RopeCase& of = cases.at(name);
    model.partial_rotary_factor = of.partial_rotary_factor;
    const Rotation rotation = rotation_of(model, {.rope_theta = 500000, .scaling = of.scaling}, of.seq_len);
    EXPECT_NEAR(rotation.attention_factor, expected[0], 1e-12) << name;
    ASSERT_EQ(rotation.frequencies.size() + 1, expected.size()) << name;
    for (std::size_t i = 1; i < expected.size(); ++i)
      EXPECT_NEAR(rotation.frequencies[i - 1], expected[i], 1e-12 * expected[i]) << name << ", pair " << i - 1;
    cases.erase(name);
  }
  EXPECT_TRUE(cases.empty());
}

TEST(RopeTables, HoldTheAnglesOfEveryPosition) {
  const LayerOptions options = one_rank(small_llama());
  const Tables tables(options);
  const std::vector<double> frequencies = rope_frequencies(options.model);
  for (std::int64_t position = 0; position < options.seq_len; ++position) {
    for (std::int64_t i = 0; i < 3; ++i) {
      const double angle = static_cast<double>(position) * frequencies[static_cast<std::size_t>(i)];
      EXPECT_EQ(tables.rope.cos.as<double>()[position * 3 + i], std::cos(angle));
      EXPECT_EQ(tables.rope.sin.as<double>()[position * 3 + i], std::sin(angle));
    }
  }
}

}  // namespace
}  // namespace echelon::test
