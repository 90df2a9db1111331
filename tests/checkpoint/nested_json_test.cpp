// JSON that is nested a million times, where a number or a name belongs: a sentence, in every file of a model folder.
#include "checkpoint/model_reader.h"

#include "checkpoint/safetensors/safetensors.h"
#include "scratch_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace echelon {
namespace {

using ::testing::HasSubstr;

std::string nested() { return std::string(1'000'000, '[') + std::string(1'000'000, ']'); }

TEST(NestedJson, InAConfigIsRefused) {
  const ScratchFolder scratch;
  const auto refusal = [&](const char* key, const std::string& value) {
    put(scratch / "config.json",
        fmt::format(R"({{"architectures":["LlamaForCausalLM"],"model_type":"llama","{}":{}}})", key, value));
    const std::string error = error_of([&] { (void)read_model_spec(scratch.path()); });
    EXPECT_LT(error.size(), 400U);
    return error;
  };
  for (const char* key : {"model_type", "hidden_size", "architectures", "quantization_config"}) {
    EXPECT_THAT(refusal(key, std::string(20, '[') + std::string(20, ']')),
                HasSubstr(fmt::format("{} = [[[[...]]]]", key)));
    EXPECT_THAT(refusal(key, nested()), HasSubstr("config.json: its JSON is nested more than 32 levels deep"));
  }
}

TEST(NestedJson, InAHeaderIsRefused) {
  const ScratchFolder scratch;
  for (const std::string& tensor : {R"({"dtype":"F32","data_offsets":[0,4],"shape":)" + nested() + "}",
                                    R"({"dtype":"F32","shape":[1],"data_offsets":)" + nested() + "}",
                                    R"({"shape":[1],"data_offsets":[0,4],"dtype":)" + nested() + "}", nested()}) {
    const std::string header = R"({"a":)" + tensor + "}";
    std::uint64_t length = header.size();
    std::string bytes(sizeof(length), '\0');
    std::memcpy(bytes.data(), &length, sizeof(length));
    put(scratch / "model.safetensors", bytes + header + "1234");
    const std::string error = error_of([&] { (void)read_safetensors_header(scratch / "model.safetensors"); });
    EXPECT_THAT(error, HasSubstr("model.safetensors"));
    EXPECT_LT(error.size(), 400U);
  }
}

}  // namespace
}  // namespace echelon
