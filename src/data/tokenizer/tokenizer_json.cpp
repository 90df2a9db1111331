#include "data/tokenizer/tokenizer_spec.h"

#include "base/error.h"
#include "base/shown_json.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/splitter.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <unordered_map>

namespace echelon {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t most_tokens = 1 << 24;  // a wrong id must not allocate all memory

/// A value of the file with its name for messages: "tokenizer.json: model.vocab".
struct JsonNode {
  const Json& json;
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
  [[nodiscard]] std::int32_t id() const {
    require(json.is_number_integer() && json >= 0 && json < most_tokens, "{} = {} is not a token id in [0, {})", name,
            shown_json(json), most_tokens);
    return json.get<std::int32_t>();
  }
  [[nodiscard]] bool flag(const std::string& key, bool otherwise) const {
    if (!has(key)) return otherwise;
    const JsonNode part = at(key);
    require(part.json.is_boolean(), "{} is not true or false", part.name);
    return part.json.get<bool>();
  }
  [[nodiscard]] std::size_t size() const {
    require(json.is_array(), "{} is not an array", name);
    return json.size();
  }
  void must_not(bool is_bad, std::string_view why) const {
    require(!is_bad, "{} = {} is not supported: {}", name, shown_json(json).substr(0, 60), why);
  }
};

void read_vocab(const JsonNode& vocab, TokenizerSpec& spec) {
  require(vocab.json.is_object(), "{} is not an object", vocab.name);
  for (const auto& [text, value] : vocab.json.items()) {
    const std::int32_t id = JsonNode{value, vocab.name + "." + text}.id();
    const auto slot = static_cast<std::size_t>(id);
    if (spec.tokens.size() <= slot) spec.tokens.resize(slot + 1);
    require(!text.empty() && spec.tokens[slot].empty(), "{}: id {} is given to an empty or a second token ({})",
            vocab.name, id, text);
    spec.tokens[slot] = from_byte_alphabet(text);
  }
}

std::pair<std::string, std::string> read_pair(const JsonNode& merge) {
  if (merge.json.is_array()) {
    require(merge.size() == 2, "{} is not a pair", merge.name);
    return {merge.at(0).text(), merge.at(1).text()};
  }
  const std::string text = merge.text();
  const std::size_t space = text.find(' ');
  require(space != std::string::npos && text.find(' ', space + 1) == std::string::npos,
          "{} = \"{}\" is not two tokens with a space between", merge.name, text);
  return {text.substr(0, space), text.substr(space + 1)};
}

void read_merges(const JsonNode& merges, TokenizerSpec& spec) {
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!spec.tokens[id].empty()) ids.emplace(spec.tokens[id], static_cast<std::int32_t>(id));
  }
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const JsonNode merge = merges.at(i);
    const auto [left_text, right_text] = read_pair(merge);
    const std::string left = from_byte_alphabet(left_text);
    const std::string right = from_byte_alphabet(right_text);
    const auto id_of = [&](const std::string& bytes) {
      const auto found = ids.find(bytes);
      require(found != ids.end(), "{}: \"{}\" is not in model.vocab", merge.name, to_byte_alphabet(bytes));
      return found->second;
    };
    spec.merges.push_back({id_of(left), id_of(right), id_of(left + right)});
  }
}

void read_model(const JsonNode& model, TokenizerSpec& spec) {
  const std::string type = model.has("type") ? model.at("type").text() : "BPE";  // early files omit it
  require(type == "BPE", "{}.type = {} is not supported; byte-level BPE is", model.name, type);
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (model.has(key)) model.at(key).must_not(!model.at(key).text().empty(), "byte-level tokens carry no marks");
  }
  if (model.has("dropout"))
    model.at("dropout").must_not(model.at("dropout").json != 0.0, "tokenization must be the same every time");
  if (model.has("byte_fallback"))
    model.at("byte_fallback").must_not(model.flag("byte_fallback", false), "that is SentencePiece's kind of BPE");
  spec.prefers_whole_pieces = model.flag("ignore_merges", false);
  read_vocab(model.at("vocab"), spec);
  read_merges(model.at("merges"), spec);
}

void read_byte_level(const JsonNode& step, TokenizerSpec& spec) {
  if (step.has("add_prefix_space"))
    step.at("add_prefix_space").must_not(step.flag("add_prefix_space", true), "decoding would not give the text back");
  if (step.flag("use_regex", true)) spec.patterns.emplace_back(gpt2_pattern);
}

void read_split(const JsonNode& step, TokenizerSpec& spec) {
  const JsonNode behavior = step.at("behavior");
  behavior.must_not(behavior.text() != "Isolated", "Isolated is");
  if (step.has("invert")) step.at("invert").must_not(step.flag("invert", false), "false is");
  const JsonNode pattern = step.at("pattern");
  require(pattern.has("Regex"), "{} is not a Regex, the one kind that is supported", pattern.name);
  spec.patterns.push_back(pattern.at("Regex").text());
}

void read_pre_tokenizer(const JsonNode& pre, TokenizerSpec& spec) {
  const std::string type = pre.at("type").text();
  if (type == "ByteLevel") return read_byte_level(pre, spec);
  require(type == "Sequence", "{}.type = {} is not supported; ByteLevel and a Sequence of Split and ByteLevel are",
          pre.name, type);
  const JsonNode steps = pre.at("pretokenizers");
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const JsonNode step = steps.at(i);
    const std::string kind = step.at("type").text();
    const bool is_last = i + 1 == steps.size();
    require(kind == (is_last ? "ByteLevel" : "Split"),
            "{}.type = {} is not supported; some of Split and then one ByteLevel are", step.name, kind);
    is_last ? read_byte_level(step, spec) : read_split(step, spec);
  }
  require(steps.size() > 0, "{} is empty", steps.name);
}

void read_added(const JsonNode& added, TokenizerSpec& spec) {
  for (std::size_t i = 0; i < added.size(); ++i) {
    const JsonNode token = added.at(i);
    for (const char* key : {"single_word", "lstrip", "rstrip"}) {
      if (token.has(key)) token.at(key).must_not(token.flag(key, false), "false is");
    }
    spec.added.push_back({token.at("id").id(), token.at("content").text(), token.flag("special", false)});
    require(!spec.added.back().content.empty(), "{}.content is empty", token.name);
  }
  std::sort(spec.added.begin(), spec.added.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
}

std::string json_text(std::string_view text) { return Json(text).dump(); }

std::string joined(const std::vector<std::string>& lines) {
  return lines.empty() ? "" : fmt::format("\n      {}\n    ", fmt::join(lines, ",\n      "));
}

std::string_view normalizer_json(Normalization normalization) {
  switch (normalization) {
    case Normalization::none: return "null";
    case Normalization::nfc: return R"({"type": "NFC"})";
  }
  return "null";
}

std::string pre_tokenizer_json(const TokenizerSpec& spec) {
  const auto byte_level = [](bool use_regex) {
    return fmt::format(R"({{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": {}}})",
                       use_regex);
  };
  if (spec.patterns.empty()) return byte_level(false);
  if (spec.patterns == std::vector<std::string>{std::string(gpt2_pattern)}) return byte_level(true);
  std::string steps;
  for (const std::string& pattern : spec.patterns) {
    steps +=
        fmt::format(R"({{"type": "Split", "pattern": {{"Regex": {}}}, "behavior": "Isolated", "invert": false}}, )",
                    json_text(pattern));
  }
  return fmt::format(R"({{"type": "Sequence", "pretokenizers": [{}{}]}})", steps, byte_level(false));
}

}  // namespace

TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& name) {
  const Json json = Json::parse(text, nullptr, false);
  require(!json.is_discarded(), "{} is not valid JSON", name);
  require(json.is_object(), "{} is not a JSON object", name);
  const JsonNode file{json, name + ": tokenizer"};
  TokenizerSpec spec;
  if (file.has("normalizer")) {
    file.at("normalizer").must_not(file.at("normalizer").at("type").text() != "NFC", "NFC and null are");
    spec.normalization = Normalization::nfc;
  }
  if (file.has("decoder"))
    file.at("decoder").at("type").must_not(file.at("decoder").at("type").text() != "ByteLevel", "ByteLevel is");
  read_pre_tokenizer(file.at("pre_tokenizer"), spec);
  read_model(file.at("model"), spec);
  if (file.has("added_tokens")) read_added(file.at("added_tokens"), spec);
  return spec;
}

std::string to_tokenizer_json(const TokenizerSpec& spec) {
  std::vector<std::string> vocab, merges, added;
  const auto token = [&](std::int32_t id) { return to_byte_alphabet(spec.tokens[static_cast<std::size_t>(id)]); };
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!spec.tokens[id].empty())
      vocab.push_back(fmt::format("{}: {}", json_text(token(static_cast<std::int32_t>(id))), id));
  }
  for (const Merge& merge : spec.merges) merges.push_back(json_text(token(merge.left) + " " + token(merge.right)));
  for (const AddedToken& one : spec.added) {
    added.push_back(fmt::format(
        R"({{"id": {}, "content": {}, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": {}}})",
        one.id, json_text(one.content), one.is_special));
  }
  return fmt::format(R"({{
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [{}],
  "normalizer": {},
  "pre_tokenizer": {},
  "post_processor": null,
  "decoder": {{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}},
  "model": {{
    "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
    "byte_fallback": false, "ignore_merges": {},
    "vocab": {{{}}},
    "merges": [{}]
  }}
}}
)",
                     joined(added), normalizer_json(spec.normalization), pre_tokenizer_json(spec),
                     spec.prefers_whole_pieces, joined(vocab), joined(merges));
}

}  // namespace echelon
