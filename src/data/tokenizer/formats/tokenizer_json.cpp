#include "data/tokenizer/tokenizer_spec.h"

#include "base/bounded_json.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/formats/json_node.h"

#include <algorithm>
#include <unordered_map>

namespace echelon {
namespace {

/// Ids as the library gives them, whatever the file says: a token that the vocabulary has keeps the vocabulary's id,
/// and the others follow the vocabulary in the file's order.
void read_added(const JsonNode& added, TokenizerSpec& spec) {
  std::unordered_map<std::string, std::int32_t> known;
  const auto is_bytes = [&](std::size_t id) {
    return spec.model == TokenModel::byte_level &&
           !std::binary_search(spec.no_bytes.begin(), spec.no_bytes.end(), static_cast<std::int32_t>(id));
  };
  for (std::size_t id = 0; id < spec.tokens.size(); ++id)
    known.insert_or_assign(is_bytes(id) ? to_byte_alphabet(spec.tokens[id]) : spec.tokens[id],
                           static_cast<std::int32_t>(id));
  const bool may_have_gaps = spec.model != TokenModel::unigram;
  auto next = static_cast<std::int32_t>(std::ssize(spec.tokens) -
                                        (may_have_gaps ? std::ranges::count(spec.tokens, std::string()) : 0));
  for (std::size_t i = 0; i < added.size(); ++i) {
    const JsonNode token = added.at(i);
    AddedToken one{token.at("id").id(spec.tokens.size() + added.size()), token.at("content").text(),
                   token.flag("special", false)};
    require(!one.content.empty(), "{}.content is empty", token.name);
    one.is_normalized = token.flag("normalized", !one.is_special);
    one.strips_left = token.flag("lstrip", false);
    one.strips_right = token.flag("rstrip", false);
    one.is_single_word = token.flag("single_word", false);
    const auto [found, is_new] = known.try_emplace(one.content, next);
    if (is_new) ++next;
    one.id = found->second;
    spec.added.push_back(std::move(one));
  }
  std::stable_sort(spec.added.begin(), spec.added.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
}

}  // namespace

TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& name) {
  const nlohmann::json json = parse_json_object(text, name);
  const JsonNode file{json, name + ": tokenizer"};
  TokenizerSpec spec;
  if (file.has("normalizer")) read_normalizer(file.at("normalizer"), spec);
  if (file.has("pre_tokenizer")) read_splitter(file.at("pre_tokenizer"), spec);
  if (file.has("decoder")) read_decoder(file.at("decoder"), spec);
  read_model(file.at("model"), spec);
  if (file.has("added_tokens")) read_added(file.at("added_tokens"), spec);
  if (file.has("post_processor")) read_template(file.at("post_processor"), spec);
  return spec;
}

}  // namespace echelon
