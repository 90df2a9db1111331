#include "checkpoint/hf/tokenizer_files.h"

#include "base/bounded_json.h"
#include "base/error.h"
#include "files/file.h"

#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using nlohmann::json;

std::optional<std::int64_t> id_of(const json& tokenizer, std::string_view token) {
  const auto added = tokenizer.find("added_tokens");
  if (added != tokenizer.end() && added->is_array())
    for (const json& each : *added)
      if (each.is_object() && each.contains("content") && each.contains("id") && each["id"].is_number_unsigned() &&
          each["content"] == token)
        return each["id"].get<std::int64_t>();
  const json& model = tokenizer.at("model");
  if (!model.is_object() || !model.contains("vocab") || !model["vocab"].is_object()) return std::nullopt;
  const auto found = model["vocab"].find(std::string(token));
  if (found == model["vocab"].end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<std::int64_t>();
}

/// A token is a string, or an object that has it as its content.
std::optional<std::int64_t> id_of_named(const json& tokenizer, const json& config, std::string_view key) {
  const auto token = config.find(std::string(key));
  if (token == config.end()) return std::nullopt;
  if (token->is_string()) return id_of(tokenizer, token->get<std::string>());
  if (!token->is_object() || !token->contains("content") || !token->at("content").is_string()) return std::nullopt;
  return id_of(tokenizer, token->at("content").get<std::string>());
}

}  // namespace

SpecialTokens special_tokens(const std::filesystem::path& tokenizer) {
  const json read = parse_json_object(read_text(tokenizer), tokenizer.string());
  require(read.contains("model"), "{} is not a tokenizer.json", tokenizer.string());
  const std::filesystem::path sibling = tokenizer.parent_path() / "tokenizer_config.json";
  if (!has_target(sibling)) return {.bos = id_of(read, end_of_text), .eos = id_of(read, end_of_text)};
  const json config = parse_json_object(read_text(sibling), sibling.string());
  return {.bos = id_of_named(read, config, "bos_token"), .eos = id_of_named(read, config, "eos_token")};
}

}  // namespace echelon
