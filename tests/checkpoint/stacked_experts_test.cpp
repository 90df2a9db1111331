// Folders whose experts are stacked in one tensor are read as those that have a tensor for each.
#include "base/error.h"
#include "checkpoint/convert_model.h"
#include "checkpoint/raw_tensors.h"
#include "checkpoint/scratch_folder.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cstring>

namespace echelon {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Tensors = std::map<std::string, RawTensor>;

void write_folder(const std::filesystem::path& folder, const std::filesystem::path& config, const Tensors& tensors) {
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(config, folder / "config.json");
  nlohmann::ordered_json header;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.format},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  const std::string text = header.dump();
  const std::uint64_t size = text.size();
  std::array<char, sizeof(size)> length;
  std::memcpy(length.data(), &size, sizeof(size));
  put(folder / "model.safetensors", std::string(length.data(), length.size()) + text + data);
}

/// Where the matrix of an expert is: LAYER "experts" E "gate_proj" and so on.
struct ExpertName {
  std::string layer, matrix;
};

ExpertName expert_name(const std::string& name) {
  const std::size_t experts = name.find("experts."), matrix = name.find('.', experts + 8) + 1;
  return {name.substr(0, experts), name.substr(matrix, name.rfind('.') - matrix)};
}

class StackedExperts : public ::testing::TestWithParam<std::string> {
 protected:
  /// The tensors of the fixture, as transformers 5 has them in memory.
  [[nodiscard]] Tensors stacked() const {
    Tensors stacked;
    for (int expert = 0; expert < 100; ++expert)
      for (const char* matrix : {"gate_proj", "w1", "up_proj", "w3", "down_proj", "w2"})
        for (const auto& [name, tensor] : separate_) {
          const auto at = name.find(fmt::format("experts.{}.{}.", expert, matrix));
          if (at == std::string::npos) continue;
          const bool is_down = expert_name(name).matrix == "down_proj" || expert_name(name).matrix == "w2";
          RawTensor& stack =
              stacked[expert_name(name).layer + (is_down ? "experts.down_proj" : "experts.gate_up_proj")];
          stack.format = tensor.format;
          stack.shape = {expert + 1, (is_down ? 1 : 2) * tensor.shape[0], tensor.shape[1]};
          stack.bytes += tensor.bytes;
        }
    for (const auto& [name, tensor] : separate_)
      if (name.find("experts.") == std::string::npos || name.find("shared_expert") != std::string::npos)
        stacked[name] = tensor;
    return stacked;
  }

  std::filesystem::path fixture_ = std::filesystem::path(ECHELON_SOURCE_DIR) / "tests/interop/fixtures" / GetParam();
  Tensors separate_ = tensors_in(fixture_);
  ScratchFolder scratch_;
};

TEST_P(StackedExperts, HaveTheBytesOfSeparateOnes) {
  const Tensors tensors = stacked();
  ASSERT_LT(tensors.size(), separate_.size());
  write_folder(scratch_ / "stacked", fixture_ / "config.json", tensors);
  convert_model(scratch_ / "stacked", scratch_ / "separate", {});
  EXPECT_EQ(tensors_in(scratch_ / "separate"), separate_);
}

TEST_P(StackedExperts, AreRefusedWithOneExpertTwice) {
  Tensors tensors = stacked();
  const auto expert = std::find_if(separate_.begin(), separate_.end(), [](const auto& tensor) {
    return tensor.first.find(".experts.1.") != std::string::npos;
  });
  tensors.insert(*expert);
  write_folder(scratch_ / "stacked", fixture_ / "config.json", tensors);
  EXPECT_THAT([&] { convert_model(scratch_ / "stacked", scratch_ / "separate", {}); },
              ThrowsMessage<Error>(HasSubstr("has an expert twice, in '" + expert->first + "'")));
}

TEST_P(StackedExperts, AreRefusedInAnotherShape) {
  Tensors tensors = stacked();
  const auto stack = std::find_if(tensors.begin(), tensors.end(),
                                  [](const auto& tensor) { return tensor.first.ends_with("experts.down_proj"); });
  ASSERT_NE(stack, tensors.end());
  std::swap(stack->second.shape[1], stack->second.shape[2]);
  write_folder(scratch_ / "stacked", fixture_ / "config.json", tensors);
  EXPECT_THAT([&] { convert_model(scratch_ / "stacked", scratch_ / "separate", {}); },
              ThrowsMessage<Error>(HasSubstr("tensor '" + stack->first + "' is ")));
}

INSTANTIATE_TEST_SUITE_P(Families, StackedExperts,
                         ::testing::Values("mixtral", "qwen3_moe", "dots1", "olmoe", "qwen2_moe", "deepseek_v3"));

}  // namespace
}  // namespace echelon
