// RoPE frequencies against the definitions, wavelength by wavelength.
#include "nn/decoder/rope_tables.h"

#include "nn/bench.h"
#include "nn/models.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

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
