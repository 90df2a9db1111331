#include "data/tokenizer/formats/json_node.h"

#include "base/text/base64.h"
#include "base/text/utf8.h"
#include "data/tokenizer/formats/step_names.h"
#include "data/tokenizer/unicode/character_map.h"

#include <algorithm>
#include <array>
#include <utility>

namespace echelon {
namespace {

constexpr int deepest_sequence = 8;
constexpr std::size_t most_growth = 256;  // published ones make a blank three bytes

/// Calls read(step, type) for a step, or for each step of a Sequence, whose steps are under `key`.
template <class Read>
void for_each_step(const JsonNode& step, const std::string& key, const Read& read, int depth = 0) {
  const std::string type = step.at("type").text();
  if (type != "Sequence") return read(step, type);
  require(depth < deepest_sequence, "{} is a sequence in {} others (at most {})", step.name, depth, deepest_sequence);
  const JsonNode steps = step.at(key);
  for (std::size_t i = 0; i < steps.size(); ++i) for_each_step(steps.at(i), key, read, depth + 1);
}

/// {"String": "..."} or {"Regex": "..."}.
void read_pattern(const JsonNode& pattern, std::string& text, bool& is_regex) {
  is_regex = pattern.has("Regex");
  require(is_regex || pattern.has("String"), "{} is neither a String nor a Regex", pattern.name);
  const JsonNode node = pattern.at(is_regex ? "Regex" : "String");
  text = node.text();
  require(!text.empty(), "{} is empty", node.name);
}

std::string one_character(const JsonNode& node) {
  const std::string text = node.text();
  require(!text.empty() && utf8_character_length(text) == text.size(), "{} = \"{}\" is not one character", node.name,
          text);
  return text;
}

template <class Value, std::size_t count>
Value named(const JsonNode& node, const std::array<std::pair<std::string_view, Value>, count>& names) {
  const std::string text = node.text();
  std::string all;
  for (const auto& [name, value] : names) {
    if (name == text) return value;
    all += (all.empty() ? "" : ", ") + std::string(name);
  }
  node.refuse(all + " are");
}

PrependScheme prepend_scheme(const JsonNode& step) {
  const bool is_off = !step.flag("add_prefix_space", true);
  if (!step.has("prepend_scheme")) return is_off ? PrependScheme::never : PrependScheme::always;
  const PrependScheme scheme = named(step.at("prepend_scheme"), prepend_names);
  require(!is_off || scheme == PrependScheme::never,
          "{}.add_prefix_space = false does not fit the prepend_scheme (use \"never\")", step.name);
  return scheme;
}

NormalizerStep normalizer_step(const JsonNode& step, const std::string& type) {
  using Kind = NormalizerStep::Kind;
  for (const auto& [name, form] : form_names) {
    if (type == name) return {.kind = Kind::form, .form = form};
  }
  if (type == "Lowercase") return {.kind = Kind::lowercase};
  if (type == "Strip")
    return {.kind = Kind::strip,
            .strips_left = step.flag("strip_left", true),
            .strips_right = step.flag("strip_right", true)};
  if (type == "Prepend") return {.kind = Kind::prepend, .content = step.at("prepend").text()};
  if (type == "Replace") {
    NormalizerStep replace{.kind = Kind::replace, .content = step.at("content").text()};
    read_pattern(step.at("pattern"), replace.pattern, replace.is_regex);
    return replace;
  }
  if (type == "Precompiled") {
    // The library's own takes each cluster of characters by itself.
    if (!step.flag("longest_match", false))
      step.at("type").refuse("SentencePiece's way, as in the tokenizer.model or with \"longest_match\": true, is");
    const auto rules = from_base64(step.at("precompiled_charsmap").text());
    require(rules.has_value(), "{}.precompiled_charsmap is not base64", step.name);
    return {.kind = Kind::character_map, .content = *rules};
  }
  step.at("type").refuse("NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend, Replace and a Sequence of them are");
}

SplitStep split_step(const JsonNode& step, const std::string& type) {
  using Kind = SplitStep::Kind;
  if (type == "ByteLevel")
    return {.kind = Kind::byte_level,
            .adds_space = step.flag("add_prefix_space", true),
            .splits = step.flag("use_regex", true)};
  if (type == "Split") {
    SplitStep split{.behavior = named(step.at("behavior"), behavior_names), .is_inverted = step.flag("invert", false)};
    read_pattern(step.at("pattern"), split.pattern, split.is_regex);
    return split;
  }
  if (type == "Digits") return {.kind = Kind::digits, .is_individual = step.flag("individual_digits", false)};
  if (type == "Metaspace")
    return {.kind = Kind::metaspace,
            .pattern = one_character(step.at("replacement")),
            .prepend = prepend_scheme(step),
            .splits = step.flag("split", true)};
  if (type == "Punctuation")
    return {.kind = Kind::punctuation,
            .behavior = step.has("behavior") ? named(step.at("behavior"), behavior_names) : SplitBehavior::isolated};
  if (type == "Whitespace") return {.kind = Kind::whitespace};
  if (type == "WhitespaceSplit") return {.kind = Kind::whitespace_split};
  step.at("type").refuse(
      "ByteLevel, Split, Digits, Metaspace, Punctuation, Whitespace, WhitespaceSplit and a Sequence of them are");
}

DecodeStep decode_step(const JsonNode& step, const std::string& type) {
  using Kind = DecodeStep::Kind;
  if (type == "ByteLevel") return {.kind = Kind::byte_level};
  if (type == "ByteFallback") return {.kind = Kind::byte_fallback};
  if (type == "Fuse") return {.kind = Kind::fuse};
  if (type == "Metaspace")
    return {.kind = Kind::metaspace, .pattern = one_character(step.at("replacement")), .prepend = prepend_scheme(step)};
  if (type == "Strip") {
    constexpr std::int64_t most = 1 << 20;
    return {.kind = Kind::strip,
            .pattern = one_character(step.at("content")),
            .start = step.at("start").number(most, "a count"),
            .stop = step.at("stop").number(most, "a count")};
  }
  if (type == "Replace") {
    DecodeStep replace{.kind = Kind::replace, .content = step.at("content").text()};
    read_pattern(step.at("pattern"), replace.pattern, replace.is_regex);
    return replace;
  }
  step.at("type").refuse("ByteLevel, ByteFallback, Replace, Strip, Metaspace, Fuse and a Sequence of them are");
}

void append_ids(const JsonNode& ids, std::vector<std::int32_t>& out) {
  for (std::size_t i = 0; i < ids.size(); ++i) out.push_back(ids.at(i).id());
}

/// {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"<s>": {"ids": [1]}}}.
void read_template_processing(const JsonNode& step, TokenizerSpec& spec) {
  const JsonNode parts = step.at("single");
  bool is_after = false;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const JsonNode part = parts.at(i);
    if (part.has("Sequence")) {
      require(!is_after, "{} has the text twice", parts.name);
      is_after = true;
    } else {
      const std::string token = part.at("SpecialToken").at("id").text();
      append_ids(step.at("special_tokens").at(token).at("ids"), is_after ? spec.after_text : spec.before_text);
    }
  }
  require(is_after, "{} has no Sequence, the place of the text", parts.name);
}

}  // namespace

void read_normalizer(const JsonNode& normalizer, TokenizerSpec& spec) {
  // Steps multiply: sixty that double a letter would make 2^60 of it.
  std::size_t growth = 1;
  for_each_step(normalizer, "normalizers", [&](const JsonNode& step, const std::string& type) {
    const NormalizerStep made = normalizer_step(step, type);
    if (made.kind == NormalizerStep::Kind::replace)
      growth *= std::max<std::size_t>(made.content.size() / (made.is_regex ? 1 : made.pattern.size()), 1);
    if (made.kind == NormalizerStep::Kind::character_map)
      growth *= std::max<std::size_t>(CharacterMap(made.content, step.name).longest_replacement(), 1);
    require(growth <= most_growth, "{} and those before it make text {} times as long (at most {})", step.name, growth,
            most_growth);
    spec.normalizer.push_back(made);
  });
}

void read_splitter(const JsonNode& pre_tokenizer, TokenizerSpec& spec) {
  for_each_step(pre_tokenizer, "pretokenizers", [&](const JsonNode& step, const std::string& type) {
    const bool has_bytes = !spec.splitter.empty() && spec.splitter.back().kind == SplitStep::Kind::byte_level;
    require(!has_bytes, "{}.type = {} comes after ByteLevel, which must be the last step", step.name, type);
    spec.splitter.push_back(split_step(step, type));
  });
}

void read_decoder(const JsonNode& decoder, TokenizerSpec& spec) {
  for_each_step(decoder, "decoders", [&](const JsonNode& step, const std::string& type) {
    spec.decoder.push_back(decode_step(step, type));
  });
}

void read_template(const JsonNode& post_processor, TokenizerSpec& spec) {
  for_each_step(post_processor, "processors", [&](const JsonNode& step, const std::string& type) {
    if (type == "ByteLevel") return;  // changes offsets alone
    if (type == "TemplateProcessing") return read_template_processing(step, spec);
    if (type != "BertProcessing" && type != "RobertaProcessing")
      step.at("type").refuse("TemplateProcessing, BertProcessing, RobertaProcessing and ByteLevel are");
    for (const char* key : {"cls", "sep"}) {
      const JsonNode pair = step.at(key);
      require(pair.size() == 2, "{} is not a token and its id", pair.name);
      (key[0] == 'c' ? spec.before_text : spec.after_text).push_back(pair.at(1).id());
    }
  });
}

}  // namespace echelon
