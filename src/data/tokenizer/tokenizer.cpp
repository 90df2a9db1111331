#include "data/tokenizer/tokenizer.h"

#include "base/error.h"
#include "data/files/durable_file.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/encoder.h"
#include "data/tokenizer/tokenizer_files.h"

#include <algorithm>
#include <utility>

namespace echelon {
namespace {

using AnyModel = std::variant<BpeModel, UnigramModel>;

AnyModel make_model(const TokenizerSpec& spec, const std::string& name) {
  if (spec.model == TokenModel::unigram) return AnyModel(std::in_place_type<UnigramModel>, spec, name);
  return AnyModel(std::in_place_type<BpeModel>, spec, name);
}

std::optional<SpacedWords> words_of(const TokenizerSpec& spec, const AnyModel& model) {
  const auto* bpe = std::get_if<BpeModel>(&model);
  return bpe != nullptr && bpe->cuts().any() ? SpacedWords::of(spec) : std::nullopt;
}

// A byte-level file without a decoder is decoded to its bytes.
std::vector<DecodeStep> decoder_steps(const TokenizerSpec& spec) {
  if (spec.decoder.empty() && spec.model == TokenModel::byte_level) return {{.kind = DecodeStep::Kind::byte_level}};
  return spec.decoder;
}

}  // namespace

Tokenizer::Tokenizer(TokenizerSpec spec, const std::string& name)
    : spec_(std::move(spec)),
      normalizer_(spec_.normalizer),
      splitter_(spec_.splitter),
      model_(make_model(spec_, name)),
      words_(words_of(spec_, model_)),
      decoder_(decoder_steps(spec_)),
      raw_added_(finder(AddedTokenKind::raw)),
      normalized_added_(finder(AddedTokenKind::normalized)) {
  std::size_t size = spec_.tokens.size();
  for (const AddedToken& added : spec_.added) size = std::max(size, static_cast<std::size_t>(added.id) + 1);
  bytes_.resize(size);
  is_token_.resize(size);
  for (std::size_t id = 0; id < spec_.tokens.size(); ++id) is_token_[id] = !spec_.tokens[id].empty();
  for (const AddedToken& added : spec_.added) is_token_[static_cast<std::size_t>(added.id)] = true;
  for (std::size_t id = 0; id < size; ++id) {
    if (is_token_[id]) bytes_[id] = decoder_.decode_one(in_file(static_cast<std::int32_t>(id)));
  }
}

std::string Tokenizer::normalized(const std::string& content) const {
  std::string storage;
  return std::string(normalizer_.apply(content, storage));
}

AddedTokenFinder Tokenizer::finder(AddedTokenKind kind) const {
  const bool is_normalized = kind == AddedTokenKind::normalized;
  std::vector<const AddedToken*> tokens;
  std::vector<std::string> contents;
  for (const AddedToken& added : spec_.added) {
    const bool is_control = kind == AddedTokenKind::raw_or_control && added.is_special;
    if (added.is_normalized != is_normalized && !is_control) continue;
    tokens.push_back(&added);
    contents.push_back(is_normalized ? normalized(added.content) : added.content);
  }
  return {std::move(tokens), std::move(contents)};
}

/// The token as the file has it: at byte level in the alphabet of bytes. Added tokens are as they are found.
std::string Tokenizer::in_file(std::int32_t id) const {
  const auto added = std::lower_bound(spec_.added.begin(), spec_.added.end(), id,
                                      [](const AddedToken& token, std::int32_t wanted) { return token.id < wanted; });
  if (added != spec_.added.end() && added->id == id)
    return added->is_normalized ? normalized(added->content) : added->content;
  const std::string& token = spec_.tokens[static_cast<std::size_t>(id)];
  const bool is_bytes =
      spec_.model == TokenModel::byte_level && !std::binary_search(spec_.no_bytes.begin(), spec_.no_bytes.end(), id);
  return is_bytes ? to_byte_alphabet(token) : token;
}

Tokenizer Tokenizer::load(const std::string& path, const std::string& pattern) {
  Tokenizer tokenizer(read_tokenizer(path, pattern), path);
  if (const auto end = named_token(path, "eos_token"))
    if (const auto id = tokenizer.token_of(*end)) tokenizer.set_end_of_document(*id);
  return tokenizer;
}

void Tokenizer::save(const std::string& path) const { write_durably(path, to_tokenizer_json(spec_)); }

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  Encoder(*this).append(text, ids);
  return ids;
}

std::vector<std::int32_t> Tokenizer::encode_with_template(std::string_view text) const {
  std::vector<std::int32_t> ids = spec_.before_text;
  Encoder(*this).append(text, ids);
  ids.insert(ids.end(), spec_.after_text.begin(), spec_.after_text.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  if (decoder_.is_local()) {
    std::string text;
    for (const std::int32_t id : ids) text += bytes(id);
    return text;
  }
  std::vector<std::string> tokens;
  for (const std::int32_t id : ids) {
    (void)bytes(id);
    tokens.push_back(in_file(id));
  }
  return decoder_.decode(std::move(tokens));
}

std::string_view Tokenizer::bytes(std::int32_t id) const {
  require(id >= 0 && id < vocab_size() && is_token_[static_cast<std::size_t>(id)],
          "token {} is not in the tokenizer, which has ids below {}", id, vocab_size());
  return bytes_[static_cast<std::size_t>(id)];
}

std::optional<std::int32_t> Tokenizer::added_token(std::string_view content) const {
  for (const AddedToken& added : spec_.added) {
    if (added.content == content) return added.id;
  }
  return std::nullopt;
}

std::optional<std::int32_t> Tokenizer::token_of(std::string_view content) const {
  if (const auto id = added_token(content)) return id;
  const auto found = std::find(spec_.tokens.begin(), spec_.tokens.end(), content);
  if (found == spec_.tokens.end()) return std::nullopt;
  return static_cast<std::int32_t>(found - spec_.tokens.begin());
}

std::optional<std::int32_t> Tokenizer::end_of_document() const {
  if (end_of_document_) return end_of_document_;
  if (const auto id = added_token(end_of_text)) return id;
  std::optional<std::int32_t> only;
  for (const AddedToken& added : spec_.added) {
    if (!added.is_special) continue;
    if (only) return std::nullopt;
    only = added.id;
  }
  return only;
}

}  // namespace echelon
