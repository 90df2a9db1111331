#include "data/tokenizer/formats/json_node.h"

#include "data/tokenizer/byte_alphabet.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace echelon {
namespace {

/// What the splitter ends with, ByteLevel's alphabet, is what the model gets.
bool works_on_bytes(const TokenizerSpec& spec) {
  return !spec.splitter.empty() && spec.splitter.back().kind == SplitStep::Kind::byte_level;
}

using Ids = std::unordered_map<std::string, std::int32_t>;  // by the text in the file

Ids read_vocab(const JsonNode& vocab, TokenizerSpec& spec) {
  require(vocab.json.is_object(), "{} is not an object", vocab.name);
  Ids ids;
  for (const auto& [text, value] : vocab.json.items()) {
    const std::int32_t id = JsonNode{value, vocab.name + "." + text}.id(vocab.json.size());
    const auto slot = static_cast<std::size_t>(id);
    if (spec.tokens.size() <= slot) spec.tokens.resize(slot + 1);
    require(!text.empty() && spec.tokens[slot].empty(), "{}: id {} is given to an empty or a second token ({})",
            vocab.name, id, text);
    spec.tokens[slot] = spec.model == TokenModel::byte_level ? from_byte_alphabet(text) : text;
    const bool has_bytes = spec.model != TokenModel::byte_level || to_byte_alphabet(spec.tokens[slot]) == text;
    if (!has_bytes) spec.no_bytes.push_back(id);
    ids.emplace(text, id);
  }
  std::sort(spec.no_bytes.begin(), spec.no_bytes.end());
  return ids;
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

void read_merges(const JsonNode& merges, const Ids& ids, TokenizerSpec& spec) {
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const auto [left, right] = read_pair(merges.at(i));
    const auto id_of = [&](const std::string& text) {
      const auto found = ids.find(text);
      require(found != ids.end(), "{}[{}]: \"{}\" is not in model.vocab", merges.name, i, text);
      return found->second;
    };
    spec.merges.push_back({id_of(left), id_of(right), id_of(left + right)});
  }
}

void read_bpe(const JsonNode& model, TokenizerSpec& spec) {
  spec.model = works_on_bytes(spec) ? TokenModel::byte_level : TokenModel::bpe;
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (model.has(key)) model.at(key).must_not(!model.at(key).text().empty(), "tokens carry no marks");
  }
  if (model.has("dropout"))
    model.at("dropout").must_not(model.at("dropout").json != 0.0, "tokenization must be the same every time");
  spec.prefers_whole_pieces = model.flag("ignore_merges", false);
  spec.fuses_unknown = model.flag("fuse_unk", false);
  spec.has_byte_fallback = model.flag("byte_fallback", false);
  const Ids ids = read_vocab(model.at("vocab"), spec);
  if (model.has("unk_token")) {
    const auto found = ids.find(model.at("unk_token").text());
    const bool needs_it = spec.model == TokenModel::bpe;
    require(found != ids.end() || !needs_it, "{}.unk_token = \"{}\" is not in model.vocab", model.name,
            model.at("unk_token").text());
    if (found != ids.end()) spec.unknown = found->second;
  }
  read_merges(model.at("merges"), ids, spec);
}

void read_unigram(const JsonNode& model, TokenizerSpec& spec) {
  spec.model = TokenModel::unigram;
  require(!works_on_bytes(spec), "{}.type = Unigram after ByteLevel is not supported", model.name);
  spec.has_byte_fallback = model.flag("byte_fallback", false);
  spec.has_float32_sums = model.flag("float32_sums", false);  // what was a model of SentencePiece
  const JsonNode vocab = model.at("vocab");
  require(vocab.size() <= static_cast<std::size_t>(most_token_ids), "{} has {} tokens (at most {})", vocab.name,
          vocab.size(), most_token_ids);
  for (std::size_t i = 0; i < vocab.size(); ++i) {
    const JsonNode entry = vocab.at(i);
    require(entry.size() == 2 && entry.at(1).json.is_number(), "{} is not a token and its score", entry.name);
    spec.tokens.push_back(entry.at(0).text());
    spec.scores.push_back(entry.at(1).json.get<double>());
  }
  if (!model.has("unk_id")) return;
  spec.unknown = model.at("unk_id").id();
  require(static_cast<std::size_t>(*spec.unknown) < spec.tokens.size(),
          "{}.unk_id = {} is not below {}, the number of tokens", model.name, *spec.unknown, spec.tokens.size());
}

}  // namespace

void read_model(const JsonNode& model, TokenizerSpec& spec) {
  const bool looks_like_unigram = model.has("vocab") && model.at("vocab").json.is_array();
  const std::string type = model.text_or("type", looks_like_unigram ? "Unigram" : "BPE");  // early files omit it
  if (type == "BPE") return read_bpe(model, spec);
  if (type == "Unigram") return read_unigram(model, spec);
  throw Error(fmt::format("{}.type = {} is not supported; BPE and Unigram are", model.name, type));
}

}  // namespace echelon
