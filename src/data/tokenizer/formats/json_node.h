// Reads tokenizer.json with the name of each field for messages.
#pragma once

#include "base/error.h"
#include "base/shown_json.h"
#include "data/tokenizer/tokenizer_spec.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace echelon {

inline constexpr std::int64_t most_token_ids = 1 << 24;
/// Of a file with so many tokens: ids leave few gaps, and a wrong one must not allocate memory beyond the file's size.
[[nodiscard]] constexpr std::int64_t end_of_ids(std::size_t num_tokens) {
  constexpr std::int64_t of_a_small_file = 1 << 16, gaps = 16;
  return std::min(most_token_ids, of_a_small_file + gaps * static_cast<std::int64_t>(num_tokens));
}

/// A value of the file with its name: "tokenizer.json: model.vocab".
struct JsonNode {
  const nlohmann::json& json;
  std::string name;

  [[nodiscard]] JsonNode at(const std::string& key) const {
    require(json.is_object(), "{} is not an object", name);
    require(json.contains(key), "{} has no {}", name, key);
    return {json.at(key), name + "." + key};
  }
  [[nodiscard]] JsonNode at(std::size_t i) const { return {json.at(i), fmt::format("{}[{}]", name, i)}; }
  [[nodiscard]] bool has(const std::string& key) const {
    return json.is_object() && json.contains(key) && !json.at(key).is_null();
  }

  [[nodiscard]] std::string text() const {
    require(json.is_string(), "{} is not a string", name);
    return json.get<std::string>();
  }
  [[nodiscard]] std::int32_t id() const { return static_cast<std::int32_t>(number(most_token_ids, "a token id")); }
  /// Of one of so many tokens.
  [[nodiscard]] std::int32_t id(std::size_t num_tokens) const {
    return static_cast<std::int32_t>(number(end_of_ids(num_tokens), "a token id"));
  }
  [[nodiscard]] std::int64_t number(std::int64_t end, std::string_view what) const {
    require(json.is_number_integer() && json >= 0 && json < end, "{} = {} is not {} in [0, {})", name, shown_json(json),
            what, end);
    return json.get<std::int64_t>();
  }
  [[nodiscard]] bool flag(const std::string& key, bool otherwise) const {
    if (!has(key)) return otherwise;
    const JsonNode part = at(key);
    require(part.json.is_boolean(), "{} is not true or false", part.name);
    return part.json.get<bool>();
  }
  [[nodiscard]] std::string text_or(const std::string& key, const std::string& otherwise) const {
    return has(key) ? at(key).text() : otherwise;
  }
  [[nodiscard]] std::size_t size() const {
    require(json.is_array(), "{} is not an array", name);
    return json.size();
  }
  void must_not(bool is_bad, std::string_view why) const {
    require(!is_bad, "{} = {} is not supported: {}", name, shown_json(json).substr(0, 60), why);
  }
  [[noreturn]] void refuse(std::string_view supported) const {
    throw Error(fmt::format("{} = {} is not supported; {}", name, shown_json(json).substr(0, 60), supported));
  }
};

/// The parts of the file, appended to the spec.
void read_normalizer(const JsonNode& normalizer, TokenizerSpec& spec);
void read_splitter(const JsonNode& pre_tokenizer, TokenizerSpec& spec);
void read_decoder(const JsonNode& decoder, TokenizerSpec& spec);
void read_template(const JsonNode& post_processor, TokenizerSpec& spec);
/// After the splitter, which says whether the model works on bytes.
void read_model(const JsonNode& model, TokenizerSpec& spec);

}  // namespace echelon
