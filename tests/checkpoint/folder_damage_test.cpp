// Random damage to any file of a folder ends in an Error or in a model that can be read to its end, never in a crash.
#include "base/error.h"
#include "checkpoint/hf/config/model_config.h"
#include "checkpoint/hf/model_writer.h"
#include "checkpoint/model_reader.h"
#include "files/file.h"
#include "scratch_folder.h"
#include "tiny_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace echelon {
namespace {

void write_model(const std::filesystem::path& folder, const ModelSpec& model, std::int64_t max_file_bytes) {
  ModelWriter writer({.folder = folder, .model = model, .max_file_bytes = max_file_bytes});
  writer.begin();
  for (const NamedShape& parameter : global_parameters(model))
    writer.write(parameter.name, TensorSlice(parameter.sizes), DType::float64, whole(parameter).data());
  writer.finish();
}

void read_all(const std::filesystem::path& folder) {
  const ModelReader reader(folder);
  for (const NamedShape& parameter : global_parameters(reader.spec())) {
    const Param param = sliced(parameter, 0, 1, 3);
    std::vector<float> values(static_cast<std::size_t>(param.local_sizes().num_elements()));
    reader.read(param.name, param.slice, DType::float32, values.data());
  }
}

std::string damaged(std::string text, std::mt19937& random) {
  for (auto hits = 1 + random() % 3; hits > 0; --hits) {
    const std::size_t reach = std::min<std::size_t>(text.size(), 4000);  // headers and configs, not the values
    const std::size_t at = random() % reach;
    switch (random() % 5) {
      case 0: text[at] = static_cast<char>(random()); break;
      case 1: text[at] = "0123456789-{}[],:\"e."[random() % 20]; break;
      case 2: text.erase(at, 1 + random() % 8).push_back('x'); break;
      case 3: text.insert(at, text.substr(random() % reach, random() % 16)); break;
      case 4: text.resize(1 + random() % text.size()); break;
    }
  }
  return text;
}

TEST(DamagedFolder, EndsInAnErrorOrAWholeModel) {
  std::mt19937 random(2);
  for (const Family family : {Family::gpt2, Family::llama, Family::qwen3, Family::mixtral}) {
    const ScratchFolder scratch;
    write_model(scratch / "model", tiny_model(family, true), 3000);
    EXPECT_NO_THROW(read_all(scratch / "model"));
    for (const auto& entry : std::filesystem::directory_iterator(scratch / "model")) {
      const std::string intact = get(entry.path());
      for (int round = 0; round < 60; ++round) {
        put(entry.path(), damaged(intact, random));
        try {
          read_all(scratch / "model");
        } catch (const Error& error) {
          EXPECT_EQ(error.status(), ExitStatus::bad_input) << error.what();
        }
      }
      put(entry.path(), intact);
    }
  }
}

TEST(DamagedFolder, NamesTheTensorThatIsNotFinite) {
  const ScratchFolder scratch;
  const ModelSpec model = tiny_model(Family::llama, false);
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::float16})
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
      ModelWriter writer({.folder = scratch / "model", .model = model, .dtype = dtype});
      writer.begin();
      for (const NamedShape& parameter : global_parameters(model)) {
        std::vector<double> values = whole(parameter);
        if (parameter.name == "model.norm.weight") values[values.size() / 2] = bad;
        writer.write(parameter.name, TensorSlice(parameter.sizes), DType::float64, values.data());
      }
      writer.finish();
      EXPECT_THAT(error_of([&] { read_all(scratch / "model"); }),
                  testing::HasSubstr("tensor 'model.norm.weight' holds a value that is NaN or infinite"));
    }
}

TEST(DamagedFolder, NamesTensorsThatAreLeftOver) {
  const ScratchFolder scratch;
  const ModelSpec model = tiny_model(Family::llama, true);
  write_model(scratch / "model", model, 1'000'000);
  EXPECT_EQ(ModelReader(scratch / "model").note(), "");
  ModelSpec smaller = model;
  smaller.num_hidden_layers = 1;
  write_model_config(scratch / "model", smaller, {});
  EXPECT_THAT(error_of([&] { read_all(scratch / "model"); }),
              testing::AllOf(testing::HasSubstr("9 tensors that its config.json does not ask for"),
                             testing::HasSubstr("model.layers.1.input_layernorm.weight")));
}

// transformers 4.57 would tie both to one of them, and 5.23 neither.
TEST(DamagedFolder, NamesAHeadThatIsNotTheEmbeddingItIsTiedTo) {
  const ScratchFolder scratch;
  ModelSpec model = tiny_model(Family::llama, false);
  write_model(scratch / "model", model, 1'000'000);
  model.tie_word_embeddings = true;
  write_model_config(scratch / "model", model, {});
  EXPECT_THAT(error_of([&] { read_all(scratch / "model"); }),
              testing::HasSubstr("tensor 'lm_head.weight' differs from 'model.embed_tokens.weight'"));
}

// DeepSeek-V3's last layer predicts a further token, and has experts of its own.
TEST(DamagedFolder, LeavesOutLayersThatPredictFurtherTokens) {
  const ScratchFolder scratch;
  const ModelSpec model = tiny_model(Family::deepseek_v3, true);
  write_model(scratch / "model", model, 1'000'000);
  ModelSpec smaller = model;
  smaller.num_hidden_layers = 1;
  write_model_config(scratch / "model", smaller, {});
  const ModelReader reader(scratch / "model");
  EXPECT_THAT(reader.note(),
              testing::HasSubstr("has layers that predict further tokens, whose 32 tensors are left out"));
  EXPECT_THAT(reader.note(), testing::Not(testing::HasSubstr("does not ask for")));
  EXPECT_THAT(read_text_in_folder(scratch / "model", "config.json"),
              testing::HasSubstr("num_nextn_predict_layers\": 0"));
}

// Others have read such folders with random experts, or without some of them.
TEST(DamagedFolder, NamesAnExpertThatIsMissingOrOneTooMany) {
  const ScratchFolder scratch;
  const ModelSpec model = tiny_model(Family::mixtral, false);
  write_model(scratch / "model", model, 1'000'000);
  EXPECT_NO_THROW(read_all(scratch / "model"));
  ModelSpec other = model;
  other.mixture.num_experts = 6;
  write_model_config(scratch / "model", other, {});
  EXPECT_THAT(error_of([&] { read_all(scratch / "model"); }), testing::HasSubstr("block_sparse_moe.gate.weight"));
  ModelSpec fewer = model;
  fewer.mixture.num_experts = 4;
  write_model_config(scratch / "model", fewer, {});
  EXPECT_THAT(error_of([&] { read_all(scratch / "model"); }), testing::HasSubstr("block_sparse_moe.gate.weight"));
  write_model_config(scratch / "model", model, {});
  const std::filesystem::path file = scratch / "model/model.safetensors";
  const std::string intact = get(file);
  const auto renamed = [&](const std::string& from, const std::string& to) {
    std::string text = intact;
    put(file, text.replace(text.find(from), from.size(), to));
    return error_of([&] { read_all(scratch / "model"); });
  };
  EXPECT_THAT(renamed("layers.1.block_sparse_moe.experts.4.w1", "layers.1.block_sparse_moe.experts.5.w1"),
              testing::HasSubstr("no tensor 'model.layers.1.block_sparse_moe.experts.4.w1.weight'"));
}

TEST(DamagedFolder, NamesTheTensorAndBothShapes) {
  const ScratchFolder scratch;
  write_model(scratch / "model", tiny_model(Family::llama, false), 1'000'000);
  const std::string config = get(scratch / "model/config.json");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = config;
    put(scratch / "model/config.json", text.replace(text.find(from), from.size(), to));
    return error_of([&] { read_all(scratch / "model"); });
  };
  EXPECT_THAT(
      with("\"vocab_size\": 17", "\"vocab_size\": 18"),
      ::testing::AllOf(::testing::HasSubstr("model.safetensors: tensor 'model.embed_tokens.weight' is [17, 12]"),
                       ::testing::HasSubstr("[18, 12]")));
  EXPECT_THAT(with("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"),
              ::testing::HasSubstr("no tensor 'model.layers.2.input_layernorm.weight' [12]"));
}

}  // namespace
}  // namespace echelon
