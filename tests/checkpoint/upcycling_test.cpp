// A mixture that is made of a dense model: its experts are copies, and everything else stays.
#include "checkpoint/upcycled_weights.h"

#include "base/error.h"
#include "checkpoint/convert_model.h"
#include "checkpoint/scratch_folder.h"

#include <gmock/gmock.h>

#include <cmath>

namespace echelon {
namespace {

using ::testing::HasSubstr;

const std::filesystem::path dense_fixtures = std::filesystem::path(ECHELON_SOURCE_DIR) / "tests/interop/fixtures";

std::vector<double> values_of(const ModelReader& reader, const NamedShape& parameter) {
  const TensorSlice whole(parameter.sizes);
  std::vector<double> values(static_cast<std::size_t>(whole.num_elements()));
  reader.read(parameter.name, whole, DType::float64, values.data());
  return values;
}

class Upcycled : public ::testing::TestWithParam<std::pair<const char*, Family>> {};

TEST_P(Upcycled, HasCopiesOfTheDenseModel) {
  const auto& [name, family] = GetParam();
  const ScratchFolder scratch;
  convert_model(dense_fixtures / name, scratch / "mixture", {.upcycling = {5, 2}});
  const ModelReader dense(dense_fixtures / name), mixture(scratch / "mixture");
  ASSERT_EQ(mixture.spec().family, family);
  ASSERT_EQ(mixture.spec().mixture.num_experts, 5);
  EXPECT_EQ(mixture.spec().mixture.num_experts_per_tok, 2);
  EXPECT_TRUE(mixture.spec().mixture.norm_topk_prob);
  for (const NamedShape& parameter : global_parameters(mixture.spec())) {
    const std::vector<double> values = values_of(mixture, parameter);
    const std::size_t experts = parameter.name.find("experts.");
    NamedShape of_dense = parameter;
    if (parameter.name.ends_with("mlp.gate.weight")) {
      double squares = 0;
      for (const double value : values) squares += value * value;
      const double deviation = std::sqrt(squares / static_cast<double>(values.size()));
      EXPECT_NEAR(deviation, mixture.spec().initializer_range, 0.4 * mixture.spec().initializer_range);
      continue;
    }
    if (experts != std::string::npos) {
      of_dense.name.erase(experts, std::string_view("experts.").size());
      of_dense.sizes = {parameter.sizes[1], parameter.sizes[2]};
    }
    const std::vector<double> expected = values_of(dense, of_dense);
    ASSERT_EQ(values.size() % expected.size(), 0U);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], expected[i % expected.size()]) << parameter.name << " " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Upcycled,
                         ::testing::Values(std::pair{"llama", Family::mixtral}, std::pair{"mistral", Family::mixtral},
                                           std::pair{"qwen3", Family::qwen3_moe}));

// `echelon eval` takes sequences of this length.
TEST(Upcycling, KeepsTheLengthOfTraining) {
  const ScratchFolder scratch;
  const std::filesystem::path dense = scratch / "dense";
  std::filesystem::copy(dense_fixtures / "llama", dense, std::filesystem::copy_options::recursive);
  std::string config = get(dense / "config.json");
  put(dense / "config.json", config.insert(config.find('{') + 1, "\"training_seq_len\": 7,"));
  convert_model(dense, scratch / "mixture", {.upcycling = {2, 1}});
  EXPECT_EQ(read_training_seq_len(scratch / "mixture"), 7);
}

TEST(Upcycling, IsRefusedByName) {
  const ScratchFolder scratch;
  const auto refusal = [&](const char* fixture, const std::string& text) {
    return error_of(
        [&] { convert_model(dense_fixtures / fixture, scratch / "mixture", {.upcycling = parse_upcycling(text)}); });
  };
  for (const char* text : {"8", "8,", ",2", "8,2,1", "0,1", "-4,2", "eight,two", "8;2", "99999999999999999999,2"})
    EXPECT_THAT(refusal("llama", text), HasSubstr("is not a number of experts and one of choices (use 8,2)")) << text;
  EXPECT_THAT(refusal("llama", "2,3"), HasSubstr("has more choices than experts (use 2,2)"));
  EXPECT_THAT(refusal("llama", "9000,2"), HasSubstr("model.num_experts = 9000"));
  EXPECT_THAT(refusal("gpt2", "8,2"), HasSubstr("model_type = 'gpt2' has no mixture of experts"));
  EXPECT_THAT(refusal("mixtral", "8,2"), HasSubstr("model_type = 'mixtral' has experts already"));
}

}  // namespace
}  // namespace echelon
