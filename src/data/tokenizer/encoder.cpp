#include "data/tokenizer/encoder.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>

namespace echelon {
namespace {

constexpr std::size_t fewest_slots = 64, most_slots = std::size_t{1} << 18;

// 32 bytes from the end of the first half have the first `length` bytes of a Key set.
constexpr auto masks = [] {
  std::array<std::uint8_t, 64> bytes{};
  std::fill_n(bytes.begin(), 32, std::uint8_t{0xff});
  return bytes;
}();

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

std::uint64_t Encoder::Key::hash() const {
  constexpr std::uint64_t odd = 0x9e3779b97f4a7c15u, odd_2 = 0xd1b54a32d192ed03u;
  const std::uint64_t sum =
      eights[0] * odd ^ std::rotl(eights[1] * odd_2, 29) ^ std::rotl(eights[2] * odd, 41) ^ eights[3] * odd_2;
  const std::uint64_t mixed = (sum ^ sum >> 32) * odd;
  return mixed ^ mixed >> 29;
}

bool Encoder::Key::operator==(const Key& other) const {
  return ((eights[0] ^ other.eights[0]) | (eights[1] ^ other.eights[1]) | (eights[2] ^ other.eights[2]) |
          (eights[3] ^ other.eights[3])) == 0;
}

class Encoder::Pieces : public PieceSink {
 public:
  Pieces(Encoder& encoder, std::vector<std::int32_t>& ids) : encoder_(encoder), ids_(ids) {}
  void take(std::string_view piece) override {
    const auto append = [&](std::string_view part) { encoder_.append_piece(part, ids_); };
    if (const auto* bpe = std::get_if<BpeModel>(&encoder_.tokenizer_.model_))
      return bpe->cuts().for_each_part(piece, append);
    append(piece);
  }

 private:
  Encoder& encoder_;
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
  Pieces pieces(*this, ids);
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
    if (begin > 0 && word.size() <= Key::longest) return append_piece(word, ids);
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

void Encoder::append_word_by_model(std::string_view word, std::vector<std::int32_t>& ids) {
  struct ByModel : PieceSink {
    ByModel(Encoder& encoder_of_ids, std::vector<std::int32_t>& all) : encoder(encoder_of_ids), ids(all) {}
    void take(std::string_view piece) override { encoder.append_by_model(piece, ids); }
    Encoder& encoder;
    std::vector<std::int32_t>& ids;
  } by_model(*this, ids);
  tokenizer_.words_->put_marks(word, marked_);
  tokenizer_.splitter_.split(marked_, false, by_model);
}

Encoder::Key Encoder::key_of(std::string_view piece) const {
  Key key;
  const auto place = reinterpret_cast<std::uintptr_t>(piece.data());
  const auto first = reinterpret_cast<std::uintptr_t>(readable_.data());
  if (place >= first && place + sizeof(key) <= first + readable_.size()) {
    std::array<std::uint64_t, 4> mask;
    std::memcpy(mask.data(), masks.data() + sizeof(key) - piece.size(), sizeof(mask));
    std::memcpy(key.eights.data(), piece.data(), sizeof(key));
    for (std::size_t i = 0; i < mask.size(); ++i) key.eights[i] &= mask[i];
  } else {
    std::memcpy(key.eights.data(), piece.data(), piece.size());
  }
  key.eights[3] |= std::uint64_t{piece.size()} << 56;
  return key;
}

// Slots come from memory while the next pieces are found.
void Encoder::append_piece(std::string_view piece, std::vector<std::int32_t>& ids) {
  if (piece.size() > Key::longest) {
    append_waiting(ids);
    return append_by_model(piece, ids);
  }
  Waiting& waiting = waiting_[num_waiting_++];
  waiting.key = key_of(piece);
  waiting.hash = waiting.key.hash();
  if (!slots_.empty()) {
    for (const std::uint64_t way : {0, 1}) __builtin_prefetch(&slots_[(waiting.hash ^ way) & (slots_.size() - 1)]);
  }
  if (num_waiting_ == waiting_.size()) append_waiting(ids);
}

// The ids of known pieces are copied whole, and go to `ids` together.
void Encoder::append_waiting(std::vector<std::int32_t>& ids) {
  std::array<std::int32_t, std::tuple_size_v<decltype(waiting_)> * std::size(Slot().ids)> known_ids;
  std::size_t count = 0;
  for (std::size_t i = 0; i < num_waiting_; ++i) {
    if (const Slot* known = find(waiting_[i])) {
      std::memcpy(known_ids.data() + count, known->ids, sizeof(known->ids));
      count += known->num_ids;
      continue;
    }
    ids.insert(ids.end(), known_ids.begin(), known_ids.begin() + static_cast<std::ptrdiff_t>(count));
    count = 0;
    append_new(waiting_[i], ids);
  }
  ids.insert(ids.end(), known_ids.begin(), known_ids.begin() + static_cast<std::ptrdiff_t>(count));
  num_waiting_ = 0;
}

const Encoder::Slot* Encoder::find(const Waiting& waiting) const {
  if (slots_.empty()) return nullptr;
  const std::size_t place = waiting.hash & (slots_.size() - 1);
  const Slot &first = slots_[place], &second = slots_[place ^ 1];
  const bool is_first = first.key == waiting.key;
  return is_first || second.key == waiting.key ? (is_first ? &first : &second) : nullptr;
}

void Encoder::append_new(const Waiting& waiting, std::vector<std::int32_t>& ids) {
  Slot slot{.key = waiting.key};
  const std::size_t before = ids.size();
  const std::string_view piece = slot.key.piece();
  tokenizer_.words_ && piece.starts_with(' ') ? append_word_by_model(piece, ids) : append_by_model(piece, ids);
  if (ids.size() - before > std::size(slot.ids)) return;
  slot.num_ids = static_cast<std::uint8_t>(ids.size() - before);
  std::copy(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end(), slot.ids);
  if (slots_.size() < most_slots && 2 * num_known_ >= slots_.size()) grow();
  remember(slot, waiting.hash);
}

// Of two slots the first that is free, or the one that the hash says: one piece is forgotten, never all.
void Encoder::remember(const Slot& slot, std::uint64_t hash) {
  const std::size_t mask = slots_.size() - 1;
  std::size_t place = hash & mask;
  if (!slots_[place].is_free() && (slots_[place ^ 1].is_free() || (hash >> 63) != 0)) place ^= 1;
  num_known_ += slots_[place].is_free() ? 1 : 0;
  slots_[place] = slot;
}

void Encoder::grow() {
  std::vector<Slot> old(std::max(fewest_slots, 4 * slots_.size()));
  std::swap(old, slots_);
  num_known_ = 0;
  for (const Slot& slot : old) {
    if (!slot.is_free()) remember(slot, slot.key.hash());
  }
}

}  // namespace echelon
