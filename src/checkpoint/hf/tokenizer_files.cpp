#include "checkpoint/hf/tokenizer_files.h"

#include "base/error.h"
#include "files/file.h"

#include <nlohmann/json.hpp>

namespace echelon {
namespace {
constexpr std::string_view end_of_text = "<|endoftext|>";
}

SpecialTokens special_tokens(const std::filesystem::path& tokenizer) {
  const auto json = nlohmann::json::parse(read_text(tokenizer), nullptr, /*allow_exceptions=*/false);
  require(json.is_object() && json.contains("model"), "{} is not a tokenizer.json", tokenizer.string());
  const auto added = json.find("added_tokens");
  if (added == json.end() || !added->is_array()) return {};
  for (const auto& token : *added) {
    const bool is_whole =
        token.is_object() && token.contains("content") && token.contains("id") && token["id"].is_number_unsigned();
    if (is_whole && token["content"] == end_of_text)
      return {.bos = token["id"].get<std::int64_t>(), .eos = token["id"].get<std::int64_t>()};
  }
  return {};
}

void write_tokenizer_files(const std::filesystem::path& tokenizer, const std::filesystem::path& folder,
                           std::int64_t max_tokens) {
  nlohmann::ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                   {"clean_up_tokenization_spaces", false},
                                   {"model_max_length", max_tokens}};
  if (special_tokens(tokenizer).eos)
    for (const char* key : {"bos_token", "eos_token", "unk_token"}) config[key] = end_of_text;
  write_text(folder / "tokenizer.json", read_text(tokenizer));
  write_text(folder / "tokenizer_config.json", config.dump(2) + "\n");
}

}  // namespace echelon
