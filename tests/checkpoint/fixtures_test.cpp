// Folders that transformers wrote, read into slices and written again from them: the same tensors, byte for byte.
#include "checkpoint/hf/model_writer.h"
#include "checkpoint/model_reader.h"
#include "checkpoint/safetensors/safetensors.h"
#include "scratch_folder.h"
#include "tiny_models.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

const std::filesystem::path fixtures = std::filesystem::path(ECHELON_SOURCE_DIR) / "tests/interop/fixtures";

std::map<std::string, std::string> raw_tensors(const std::filesystem::path& folder) {
  const std::string file = get(folder / "model.safetensors");
  std::map<std::string, std::string> raw;
  for (const auto& [name, tensor] : read_safetensors_header(folder / "model.safetensors"))
    raw[name + " " + tensor.format + " " + to_string(tensor.shape)] =
        file.substr(static_cast<std::size_t>(tensor.first_byte), static_cast<std::size_t>(tensor.num_bytes));
  return raw;
}

// Each of `tp` ranks reads its slices and writes them, rows and columns split alternately.
void rewrite(const std::filesystem::path& from, const std::filesystem::path& to, int tp) {
  const ModelReader reader(from);
  ModelWriter writer({.folder = to, .model = reader.spec()});
  writer.begin();
  int dim = 0;
  for (const NamedShape& parameter : global_parameters(reader.spec())) {
    dim = 1 - dim;
    for (int rank = 0; rank < tp; ++rank) {
      const Param param = sliced(parameter, dim, rank, tp);
      std::vector<float> values(static_cast<std::size_t>(param.local_sizes().num_elements()));
      reader.read(param.name, param.slice, DType::float32, values.data());
      writer.write(param.name, param.slice, DType::float32, values.data());
    }
  }
  writer.write_router_bias(reader.router_bias());
  writer.finish();
}

class Fixture : public ::testing::TestWithParam<std::string> {};

TEST_P(Fixture, IsWrittenAsItWas) {
  const ScratchFolder scratch;
  const auto original = raw_tensors(fixtures / GetParam());
  EXPECT_FALSE(original.empty());
  for (const int tp : {1, 2, 3}) {
    rewrite(fixtures / GetParam(), scratch / "model", tp);
    EXPECT_EQ(raw_tensors(scratch / "model"), original) << tp;
    EXPECT_EQ(read_model_spec(scratch / "model"), read_model_spec(fixtures / GetParam()));
  }
}

INSTANTIATE_TEST_SUITE_P(Transformers, Fixture,
                         ::testing::Values("gpt2", "llama", "llama_tied", "qwen2", "qwen3", "qwen2_window", "mistral",
                                           "mixtral", "qwen3_moe", "dots1", "phi3", "starcoder2", "llama_biases",
                                           "qwen3_yarn", "phi3_long", "phi3_short", "smollm3", "ministral3", "olmo2",
                                           "olmo3", "granite", "gpt_neox", "gpt_neox_serial", "gemma2", "gemma3_text",
                                           "olmoe", "qwen2_moe", "deepseek_v3", "deepseek_v3_dense", "deepseek_v2",
                                           "deepseek_v2_groups"),
                         [](const auto& test) { return test.param; });

TEST(Fixtures, SpecsAreThoseOfTheirConfigs) {  // as tests/interop/README.md describes them
  const ModelSpec llama = read_model_spec(fixtures / "llama");
  EXPECT_EQ(llama.head_dim, 8);
  EXPECT_EQ(llama.num_key_value_heads, 2);
  EXPECT_EQ(
      llama.rope_scaling,
      (RopeScaling{.factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position_embeddings = 128}));
  EXPECT_FALSE(llama.tie_word_embeddings);
  EXPECT_EQ(read_model_spec(fixtures / "llama_tied").rope_theta, 500);
  EXPECT_TRUE(read_model_spec(fixtures / "llama_tied").tie_word_embeddings);
  EXPECT_EQ(read_model_spec(fixtures / "qwen2").head_dim, 4);
  EXPECT_TRUE(read_model_spec(fixtures / "qwen2").qkv_bias);
  EXPECT_EQ(read_model_spec(fixtures / "qwen2").windows(), std::vector<std::int64_t>{0});
  EXPECT_EQ(read_model_spec(fixtures / "qwen2_window").windows(), (std::vector<std::int64_t>{0, 3}));
  EXPECT_EQ(read_model_spec(fixtures / "mistral").windows(), std::vector<std::int64_t>{5});
  EXPECT_EQ(read_model_spec(fixtures / "qwen3").rope_theta, 1000);
  EXPECT_TRUE(read_model_spec(fixtures / "qwen3").qk_norm);
  EXPECT_EQ(read_model_spec(fixtures / "gpt2").intermediate_size, 24);
  EXPECT_EQ(read_model_spec(fixtures / "gpt2").max_position_embeddings, 48);
}

}  // namespace
}  // namespace echelon
