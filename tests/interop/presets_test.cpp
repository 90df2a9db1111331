// The config.json of every preset, for count_parameters.py and compare_configs.py.
#include "checkpoint/hf/config/model_config.h"
#include "checkpoint/model_reader.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace echelon {
namespace {

TEST(PresetConfigs, AreWrittenAndReadAgain) {
  for (const std::string_view name : preset_names()) {
    const std::filesystem::path folder = std::filesystem::path(ECHELON_BINARY_DIR) / "interop/presets" / name;
    std::filesystem::create_directories(folder);
    write_model_config(folder, preset(name), {});
    EXPECT_EQ(read_model_spec(folder), preset(name)) << name;
  }
}

}  // namespace
}  // namespace echelon
