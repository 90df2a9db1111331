// Reads a model of SentencePiece without its library, which gives neither scores of merges nor its normalizer's map.
#include "base/error.h"
#include "base/text/utf8.h"
#include "data/tokenizer/formats/protobuf_message.h"
#include "data/tokenizer/tokenizer_files.h"
#include "data/tokenizer/unicode/character_map.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <unordered_map>
#include <utility>

namespace echelon {
namespace {

constexpr const char* piece_mark = "\xe2\x96\x81";  // what it puts for a space

namespace piece_type {
constexpr std::uint64_t normal = 1, unknown = 2, control = 3, user_defined = 4;
}

struct Piece {
  std::string text;
  float score = 0;
  std::uint64_t type = piece_type::normal;
};

struct PieceModel {
  std::vector<Piece> pieces;
  std::uint64_t type = 1;  // unigram 1, bpe 2
  bool has_byte_fallback = false, is_suffix = false;
  std::string character_map, decoding_map;
  bool has_trainer = false, has_normalizer = false;
  bool adds_prefix = true, removes_spaces = true, escapes_spaces = true;
};

Piece read_piece(std::string_view bytes, const std::string& name) {
  Piece piece;
  ProtobufMessage message(bytes, name);
  for (ProtobufField field; message.next(field);) {
    if (field.number == 1) piece.text = field.bytes;
    if (field.number == 2) piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
    if (field.number == 3) piece.type = field.value;
  }
  return piece;
}

PieceModel read_pieces(std::string_view bytes, const std::string& name) {
  PieceModel model;
  ProtobufMessage whole(bytes, name);
  for (ProtobufField part; whole.next(part);) {
    if (part.number == 1) model.pieces.push_back(read_piece(part.bytes, name));
    if (part.number == 2) model.has_trainer = true;
    if (part.number == 3) model.has_normalizer = true;
    if (part.number != 2 && part.number != 3 && part.number != 5) continue;
    ProtobufMessage message(part.bytes, name);
    for (ProtobufField field; message.next(field);) {
      const bool flag = field.value != 0;
      switch (part.number * 100 + field.number) {
        case 203: model.type = field.value; break;
        case 224: model.is_suffix = flag; break;
        case 235: model.has_byte_fallback = flag; break;
        case 302: model.character_map = field.bytes; break;
        case 303: model.adds_prefix = flag; break;
        case 304: model.removes_spaces = flag; break;
        case 305: model.escapes_spaces = flag; break;
        case 502: model.decoding_map = field.bytes; break;
        default: break;
      }
    }
  }
  return model;
}

/// A pair merges if its text is a piece; the piece of the highest score goes first.
void add_merges(const PieceModel& model, TokenizerSpec& spec) {
  std::unordered_map<std::string_view, std::int32_t> ids;
  std::vector<std::int32_t> by_score;
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const std::uint64_t type = model.pieces[id].type;
    if (type != piece_type::normal && type != piece_type::user_defined) continue;
    by_score.push_back(ids.emplace(spec.tokens[id], static_cast<std::int32_t>(id)).first->second);
  }
  const auto score = [&](std::int32_t id) { return model.pieces[static_cast<std::size_t>(id)].score; };
  std::stable_sort(by_score.begin(), by_score.end(), [&](auto a, auto b) { return score(a) > score(b); });
  for (const std::int32_t id : by_score) {
    const std::string_view token = spec.tokens[static_cast<std::size_t>(id)];
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ids.find(token.substr(0, cut)), right = ids.find(token.substr(cut));
      if (left != ids.end() && right != ids.end()) spec.merges.push_back({left->second, right->second, id});
    }
  }
}

void add_steps(const PieceModel& model, TokenizerSpec& spec) {
  if (!model.character_map.empty())
    spec.normalizer.push_back({.kind = NormalizerStep::Kind::character_map, .content = model.character_map});
  if (model.removes_spaces) {
    spec.normalizer.push_back(
        {.kind = NormalizerStep::Kind::replace, .pattern = " {2,}", .is_regex = true, .content = " "});
    spec.normalizer.push_back(
        {.kind = NormalizerStep::Kind::replace, .pattern = "\\A |[ \xe2\x96\x81]+\\z", .is_regex = true});
  }
  if (model.adds_prefix) spec.normalizer.push_back({.kind = NormalizerStep::Kind::prepend, .content = piece_mark});
  spec.normalizer.push_back({.kind = NormalizerStep::Kind::replace, .pattern = " ", .content = piece_mark});
  spec.decoder = {{.kind = DecodeStep::Kind::replace, .pattern = piece_mark, .content = " "}};
  if (model.has_byte_fallback) spec.decoder.push_back({.kind = DecodeStep::Kind::byte_fallback});
  spec.decoder.push_back({.kind = DecodeStep::Kind::fuse});
  if (model.adds_prefix)
    spec.decoder.push_back({.kind = DecodeStep::Kind::strip, .pattern = " ", .start = 1, .stop = 0});
}

void check_supported(const PieceModel& model, const std::string& name) {
  require(!model.pieces.empty(), "{} is not a model of SentencePiece: it has no pieces", name);
  // Fields are written in the order of their keys: a file that ends after any of its pieces lacks these two.
  // trainer_spec.vocab_size does not tell, because pieces that are added or removed later leave it as it was.
  for (const auto& [is_there, field] :
       {std::pair{model.has_trainer, "trainer_spec"}, {model.has_normalizer, "normalizer_spec"}})
    require(is_there, "{} is not a model of SentencePiece, or is cut off: after {} pieces it has no {}", name,
            model.pieces.size(), field);
  require(model.type == 1 || model.type == 2,
          "{} has model type {}, which is not supported; unigram (1) and BPE (2) are", name, model.type);
  require(model.decoding_map.empty(),
          "{} has a character map for decoding (denormalizer_spec), which is not supported; identity is", name);
  require(!(model.has_byte_fallback && model.type == 1),
          "{} is unigram with byte fallback, which is not supported; BPE with it is", name);
  const bool has_own = std::ranges::count(model.pieces, piece_type::user_defined, &Piece::type) > 0;
  require(!has_own || !model.adds_prefix, "{} has user-defined pieces and adds a prefix, which is not supported", name);
  require(!has_own || model.character_map.empty(),
          "{} has user-defined pieces and a character map (such as nmt_nfkc), which is not supported", name);
  for (const Piece& piece : model.pieces)
    require(!(piece.type == piece_type::user_defined && model.removes_spaces &&
              (piece.text.starts_with(piece_mark) || piece.text.ends_with(piece_mark))),
            "{} removes spaces and has the user-defined piece '{}', which is not supported", name, piece.text);
  require(!model.is_suffix && model.escapes_spaces,
          "{} marks the ends of words or keeps spaces, which is not supported", name);
}

}  // namespace

TokenizerSpec parse_sentencepiece(std::string_view bytes, const std::string& name) {
  const PieceModel model = read_pieces(bytes, name);
  check_supported(model, name);
  if (!model.character_map.empty()) (void)CharacterMap(model.character_map, name + ": the character map");
  TokenizerSpec spec;
  spec.model = model.type == 2 ? TokenModel::bpe : TokenModel::unigram;
  spec.has_byte_fallback = model.has_byte_fallback;
  spec.has_float32_sums = spec.model == TokenModel::unigram;
  spec.fuses_unknown = spec.model == TokenModel::bpe;  // a unigram model always does
  std::unordered_map<std::string_view, std::int32_t> places;
  for (const auto& [text, score, type] : model.pieces) {
    const auto id = static_cast<std::int32_t>(spec.tokens.size());
    require(!text.empty() && valid_utf8_prefix(text) == text.size() && std::isfinite(score),
            "{}: piece {} is empty or not UTF-8, or its score {} is no number", name, id, score);
    const auto [first, is_new] = places.emplace(text, id);
    require(is_new, "{}: piece {} is piece {} again", name, id, first->second);
    spec.tokens.push_back(text);
    if (spec.model == TokenModel::unigram) spec.scores.push_back(static_cast<double>(score));
    if (type == piece_type::unknown) spec.unknown = id;
    if (type == piece_type::control || type == piece_type::unknown) spec.added.push_back({id, text, true});
    // Found where spaces are marks already, so that one with a space is never found.
    if (type == piece_type::user_defined && text.find(' ') == std::string::npos)
      spec.added.push_back({.id = id, .content = text, .is_special = false, .is_normalized = true});
  }
  require(spec.unknown.has_value(), "{} has no unknown piece", name);
  if (spec.model == TokenModel::bpe) add_merges(model, spec);
  add_steps(model, spec);
  return spec;
}

}  // namespace echelon
