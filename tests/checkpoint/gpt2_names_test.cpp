// A GPT-2 file made by hand in GPT-2's own layout: every parameter is found where the paper's code stores it.
#include "base/error.h"
#include "checkpoint/model_reader.h"
#include "scratch_folder.h"
#include "tiny_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstring>

namespace echelon {
namespace {

constexpr std::int64_t D = 4, F = 6, V = 5, P = 3;

// Tensor i holds i * 1000 + its element's index, so that each value identifies its place.
class Gpt2Folder {
 public:
  explicit Gpt2Folder(const std::string& prefix) {
    put(scratch_ / "config.json",
        R"({"model_type":"gpt2","n_embd":4,"n_layer":1,"n_head":2,"n_inner":6,"n_positions":3,"vocab_size":5})");
    add(prefix + "wte.weight", {V, D});
    add(prefix + "wpe.weight", {P, D});
    add(prefix + "h.0.ln_1.weight", {D});
    add(prefix + "h.0.ln_1.bias", {D});
    add(prefix + "h.0.attn.bias", {1, 1, P, P});  // the causal mask that old files contain
    add(prefix + "h.0.attn.c_attn.weight", {D, 3 * D});
    add(prefix + "h.0.attn.c_attn.bias", {3 * D});
    add(prefix + "h.0.attn.c_proj.weight", {D, D});
    add(prefix + "h.0.attn.c_proj.bias", {D});
    add(prefix + "h.0.ln_2.weight", {D});
    add(prefix + "h.0.ln_2.bias", {D});
    add(prefix + "h.0.mlp.c_fc.weight", {D, F});
    add(prefix + "h.0.mlp.c_fc.bias", {F});
    add(prefix + "h.0.mlp.c_proj.weight", {F, D});
    add(prefix + "h.0.mlp.c_proj.bias", {D});
    add(prefix + "ln_f.weight", {D});
    add(prefix + "ln_f.bias", {D});
    const std::string header = header_.dump();
    const std::uint64_t length = header.size();
    std::string file(8, '\0');
    std::memcpy(file.data(), &length, 8);
    put(scratch_ / "model.safetensors", file + header + data_);
  }

  [[nodiscard]] const std::filesystem::path& path() const { return scratch_.path(); }
  [[nodiscard]] float first_of(const std::string& tensor) const { return first_.at(tensor); }

 private:
  void add(const std::string& name, const std::vector<std::int64_t>& shape) {
    std::int64_t count = 1;
    for (const auto size : shape) count *= size;
    first_[name] = static_cast<float>(first_.size()) * 1000;
    header_[name] = {{"dtype", "F32"},
                     {"shape", shape},
                     {"data_offsets", {data_.size(), data_.size() + static_cast<std::size_t>(count) * 4}}};
    for (std::int64_t i = 0; i < count; ++i) {
      const float value = first_[name] + static_cast<float>(i);
      data_.append(reinterpret_cast<const char*>(&value), 4);
    }
  }

  ScratchFolder scratch_;
  nlohmann::json header_;
  std::string data_;
  std::map<std::string, float> first_;
};

std::vector<float> read(const Gpt2Folder& folder, const Param& param) {
  std::vector<float> values(static_cast<std::size_t>(param.local_sizes().num_elements()));
  ModelReader(folder.path()).read(param.name, param.slice, DType::float32, values.data());
  return values;
}

Param whole_param(const std::string& name, const Sizes& sizes) {
  Param param;
  param.name = name;
  param.slice = TensorSlice(sizes);
  return param;
}

class Gpt2Names : public ::testing::TestWithParam<std::string> {};

TEST_P(Gpt2Names, FusedAndTransposedProjections) {
  const Gpt2Folder folder(GetParam());
  const float weights = folder.first_of(GetParam() + "h.0.attn.c_attn.weight"),
              biases = folder.first_of(GetParam() + "h.0.attn.c_attn.bias");
  const char* projections[] = {"q", "k", "v"};
  for (std::int64_t part = 0; part < 3; ++part) {
    const std::string stem = fmt::format("model.layers.0.self_attn.{}_proj", projections[part]);
    const auto w = read(folder, whole_param(stem + ".weight", {D, D}));
    const auto b = read(folder, whole_param(stem + ".bias", {D}));
    for (std::int64_t out = 0; out < D; ++out) {
      EXPECT_EQ(b[static_cast<std::size_t>(out)], biases + static_cast<float>(part * D + out));
      for (std::int64_t in = 0; in < D; ++in)
        EXPECT_EQ(w[static_cast<std::size_t>(out * D + in)], weights + static_cast<float>(in * 3 * D + part * D + out))
            << stem;
    }
  }
}

TEST_P(Gpt2Names, EverythingElse) {
  const Gpt2Folder folder(GetParam());
  const std::string layer = "model.layers.0.";
  const std::tuple<std::string, Sizes, std::string, bool> places[] = {
      {"model.embed_tokens.weight", {V, D}, "wte.weight", false},
      {"lm_head.weight", {V, D}, "wte.weight", false},  // tied
      {"model.embed_positions.weight", {P, D}, "wpe.weight", false},
      {layer + "input_layernorm.weight", {D}, "h.0.ln_1.weight", false},
      {layer + "input_layernorm.bias", {D}, "h.0.ln_1.bias", false},
      {layer + "self_attn.o_proj.weight", {D, D}, "h.0.attn.c_proj.weight", true},
      {layer + "self_attn.o_proj.bias", {D}, "h.0.attn.c_proj.bias", false},
      {layer + "post_attention_layernorm.weight", {D}, "h.0.ln_2.weight", false},
      {layer + "post_attention_layernorm.bias", {D}, "h.0.ln_2.bias", false},
      {layer + "mlp.up_proj.weight", {F, D}, "h.0.mlp.c_fc.weight", true},
      {layer + "mlp.up_proj.bias", {F}, "h.0.mlp.c_fc.bias", false},
      {layer + "mlp.down_proj.weight", {D, F}, "h.0.mlp.c_proj.weight", true},
      {layer + "mlp.down_proj.bias", {D}, "h.0.mlp.c_proj.bias", false},
      {"model.norm.weight", {D}, "ln_f.weight", false},
      {"model.norm.bias", {D}, "ln_f.bias", false},
  };
  for (const auto& [name, sizes, tensor, transposed] : places) {
    const auto values = read(folder, whole_param(name, sizes));
    const std::int64_t rows = sizes.num_dims() == 2 ? sizes[0] : 1, cols = sizes[-1];
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j) {
        const std::int64_t index = transposed ? j * rows + i : i * cols + j;
        EXPECT_EQ(values[static_cast<std::size_t>(i * cols + j)],
                  folder.first_of(GetParam() + tensor) + static_cast<float>(index))
            << name;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutPrefix, Gpt2Names, ::testing::Values("", "transformer."),
                         [](const auto& test) { return test.param.empty() ? "Plain" : "Prefixed"; });

TEST(Gpt2Folders, WrongSizesAndNamesAreErrors) {
  const Gpt2Folder folder("");
  EXPECT_THAT(error_of([&] {
                read(folder, whole_param("model.embed_tokens.weight", {V + 1, D}));
              }),
              ::testing::HasSubstr("is [5, 4]"));
  EXPECT_THAT(error_of([&] {
                read(folder, whole_param("model.embed_tokens.weight", {V + 1, D}));
              }),
              ::testing::HasSubstr("has [6, 4]"));
  EXPECT_THAT(error_of([&] {
                read(folder, whole_param("model.layers.0.mlp.gate_proj.weight", {F, D}));
              }),
              ::testing::HasSubstr("mlp.gate_proj.weight"));
}

}  // namespace
}  // namespace echelon
