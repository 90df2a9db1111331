#include "data/tokenizer/encoder.h"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace echelon {
namespace {

/// Calls of_text and of_token for the parts of a text.
template <class Text, class Token>
void for_each_part(const AddedTokenFinder& finder, std::string_view text, ControlRule& rule, const Text& of_text,
                   const Token& of_token) {
  std::size_t done = 0;
  for (std::size_t from = 0;;) {
    const auto found = finder.find(text, from, done, rule);
    if (found.begin > done) of_text(done, found.begin);
    if (found.token == nullptr) return;
    of_token(found);
    done = found.end;
  }
}

}  // namespace

class Encoder::Pieces : public PieceSink {
 public:
  using Append = void (Encoder::*)(std::string_view piece, std::vector<std::int32_t>& ids);
  Pieces(Encoder& encoder, Append append, std::vector<std::int32_t>& ids)
      : encoder_(encoder), append_(append), ids_(ids) {}
  void take(std::string_view piece) override {
    const auto append = [&](std::string_view part) { (encoder_.*append_)(part, ids_); };
    if (const auto* bpe = std::get_if<BpeModel>(&encoder_.tokenizer_.model_))
      return bpe->cuts().for_each_part(piece, append);
    append(piece);
  }

 private:
  Encoder& encoder_;
  const Append append_;
  std::vector<std::int32_t>& ids_;
};

Encoder::Encoder(const Tokenizer& tokenizer, bool parses_control)
    : tokenizer_(tokenizer), rule_{.skips = !parses_control} {}

void Encoder::append(std::string_view text, std::vector<std::int32_t>& ids) {
  for_each_part(
      tokenizer_.raw_added_, text, rule_,
      [&](std::size_t begin, std::size_t end) { append_raw(text.substr(begin, end - begin), begin == 0, ids); },
      [&](const auto& found) { ids.push_back(found.token->id); });
}

std::vector<EncodedRun> Encoder::append_filtered(std::string_view text, const ControlFilter& filter,
                                                 std::vector<std::int32_t>& ids) {
  if (!filtered_) filtered_ = tokenizer_.finder(AddedTokenKind::raw_or_control);
  std::vector<EncodedRun> runs;
  ControlRule rule{.filter = &filter};
  for_each_part(
      *filtered_, text, rule,
      [&](std::size_t begin, std::size_t end) {
        const std::size_t before = ids.size();
        append_raw(text.substr(begin, end - begin), begin == 0, ids);
        runs.push_back({begin, end, ids.size() - before});
      },
      [&](const auto& found) {
        ids.push_back(found.token->id);
        runs.push_back({found.begin, found.end, 1});
      });
  return runs;
}

void Encoder::append_raw(std::string_view text, bool starts_text, std::vector<std::int32_t>& ids) {
  tokenizer_.words_ ? append_words(text, starts_text, ids) : append_whole(text, starts_text, ids);
}

void Encoder::append_whole(std::string_view text, bool starts_text, std::vector<std::int32_t>& ids) {
  const std::string_view normal = tokenizer_.normalizer_.apply(text, normalized_);
  for_each_part(
      tokenizer_.normalized_added_, normal, rule_,
      [&](std::size_t begin, std::size_t end) {
        append_normalized(normal.substr(begin, end - begin), starts_text && begin == 0, ids);
      },
      [&](const auto& found) { ids.push_back(found.token->id); });
}

void Encoder::append_normalized(std::string_view text, bool starts_text, std::vector<std::int32_t>& ids) {
  Pieces pieces(*this, &Encoder::append_piece, ids);
  num_waiting_ = 0;  // an error may have left some
  readable_ = text;
  tokenizer_.splitter_.split(text, starts_text, pieces);
  append_waiting(ids);
}

// What a tokenizer puts before a text is put before its first word.
void Encoder::append_words(std::string_view text, bool starts_text, std::vector<std::int32_t>& ids) {
  num_waiting_ = 0;
  tokenizer_.words_->for_each(text, [&](std::size_t begin, std::size_t end) {
    const std::string_view word = text.substr(begin, end - begin);
    if (begin > 0 && word.size() <= PieceKey::longest) return append_piece(word, ids);
    append_waiting(ids);
    if (begin == 0) {
      append_whole(word, starts_text, ids);
    } else {
      tokenizer_.words_->put_marks(word, marked_);
      append_normalized(marked_, false, ids);
    }
    readable_ = text;
  });
  append_waiting(ids);
}

void Encoder::append_by_model(std::string_view piece, std::vector<std::int32_t>& ids) {
  std::visit([&](const auto& model) { model.append(piece, !rule_.skips, ids); }, tokenizer_.model_);
}

void Encoder::append_new_word(std::string_view word, std::vector<std::int32_t>& ids) {
  struct ByModel : PieceSink {
    ByModel(Encoder& of_ids, std::vector<std::int32_t>& all) : encoder(of_ids), ids(all) {}
    void take(std::string_view piece) override { encoder.append_by_model(piece, ids); }
    Encoder& encoder;
    std::vector<std::int32_t>& ids;
  } by_model(*this, ids);
  tokenizer_.words_->put_marks(word, marked_);
  tokenizer_.splitter_.split(marked_, false, by_model);
}

// Slots come from memory while the next pieces are found.
void Encoder::append_piece(std::string_view piece, std::vector<std::int32_t>& ids) {
  if (piece.size() > PieceKey::longest) {
    append_waiting(ids);
    return append_by_model(piece, ids);
  }
  Waiting& waiting = waiting_[num_waiting_++];
  waiting.key.assign(piece, readable_);
  waiting.hash = waiting.key.hash();
  known_.prefetch(waiting.hash);
  if (num_waiting_ == waiting_.size()) append_waiting(ids);
}

// The ids of known pieces are copied whole, and go to `ids` together.
void Encoder::append_waiting(std::vector<std::int32_t>& ids) {
  std::array<std::int32_t, std::tuple_size_v<decltype(waiting_)> * std::size(PieceCache::Slot().ids)> known_ids;
  std::size_t count = 0;
  for (std::size_t i = 0; i < num_waiting_; ++i) {
    if (const auto* known = known_.find(waiting_[i].key, waiting_[i].hash)) {
      std::memcpy(known_ids.data() + count, known->ids, sizeof(known->ids));
      count += known->num_ids;
      continue;
    }
    ids.insert(ids.end(), known_ids.begin(), known_ids.begin() + static_cast<std::ptrdiff_t>(count));
    count = 0;
    append_new(waiting_[i].key, waiting_[i].hash, ids);
  }
  ids.insert(ids.end(), known_ids.begin(), known_ids.begin() + static_cast<std::ptrdiff_t>(count));
  num_waiting_ = 0;
}

void Encoder::append_new(const PieceKey& key, std::uint64_t hash, std::vector<std::int32_t>& ids) {
  const std::size_t before = ids.size();
  const std::string_view piece = key.piece();
  tokenizer_.words_&& piece[0] == ' ' ? append_new_word(piece, ids) : append_by_model(piece, ids);
  PieceCache::Slot slot{.key = key};
  if (ids.size() - before > std::size(slot.ids)) return;
  slot.num_ids = static_cast<std::uint8_t>(ids.size() - before);
  std::copy(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end(), slot.ids);
  known_.remember(slot, hash);
}

}  // namespace echelon
