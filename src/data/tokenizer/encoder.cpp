#include "data/tokenizer/encoder.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace echelon {
namespace {

constexpr std::size_t fewest_slots = 64, most_slots = std::size_t{1} << 17;

std::uint64_t hash_of(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

/// Calls of_text and of_token for the parts of a text.
template <class Text, class Token>
void for_each_part(const AddedTokenFinder& finder, std::string_view text, bool skips_control, std::int64_t& num_skipped,
                   const Text& of_text, const Token& of_token) {
  std::size_t done = 0;
  for (std::size_t from = 0;;) {
    const auto found = finder.find(text, from, done, skips_control, num_skipped);
    if (found.begin > done) of_text(done, found.begin);
    if (found.token == nullptr) return;
    of_token(found.token->id);
    done = found.end;
  }
}

}  // namespace

class Encoder::Pieces : public PieceSink {
 public:
  Pieces(Encoder& encoder, std::vector<std::int32_t>& ids) : encoder_(encoder), ids_(ids) {}
  void take(std::string_view piece) override {
    if (const auto* bpe = std::get_if<BpeModel>(&encoder_.tokenizer_.model_)) {
      for (std::size_t cut = bpe->safe_prefix(piece); cut < piece.size(); cut = bpe->safe_prefix(piece)) {
        encoder_.append_piece(piece.substr(0, cut), ids_);
        piece.remove_prefix(cut);
      }
    }
    encoder_.append_piece(piece, ids_);
  }

 private:
  Encoder& encoder_;
  std::vector<std::int32_t>& ids_;
};

Encoder::Encoder(const Tokenizer& tokenizer, bool parses_control)
    : tokenizer_(tokenizer), parses_control_(parses_control) {}

void Encoder::append(std::string_view text, std::vector<std::int32_t>& ids) {
  for_each_part(
      tokenizer_.raw_added_, text, !parses_control_, num_control_as_text_,
      [&](std::size_t begin, std::size_t end) { append_raw(text.substr(begin, end - begin), begin == 0, ids); },
      [&](std::int32_t id) { ids.push_back(id); });
}

void Encoder::append_raw(std::string_view text, bool starts_text, std::vector<std::int32_t>& ids) {
  const std::string_view normal = tokenizer_.normalizer_.apply(text, normalized_);
  for_each_part(
      tokenizer_.normalized_added_, normal, !parses_control_, num_control_as_text_,
      [&](std::size_t begin, std::size_t end) {
        append_normalized(normal.substr(begin, end - begin), starts_text && begin == 0, ids);
      },
      [&](std::int32_t id) { ids.push_back(id); });
}

void Encoder::append_normalized(std::string_view text, bool starts_text, std::vector<std::int32_t>& ids) {
  Pieces pieces(*this, ids);
  tokenizer_.splitter_.split(text, starts_text, pieces);
}

void Encoder::append_by_model(std::string_view piece, std::vector<std::int32_t>& ids) {
  std::visit([&](const auto& model) { model.append(piece, parses_control_, ids); }, tokenizer_.model_);
}

void Encoder::append_piece(std::string_view piece, std::vector<std::int32_t>& ids) {
  Slot slot;
  if (piece.size() > sizeof(slot.bytes)) return append_by_model(piece, ids);
  slot.length = static_cast<std::uint8_t>(piece.size());
  std::memcpy(slot.bytes, piece.data(), piece.size());
  const std::uint64_t hash = hash_of(piece);
  if (!slots_.empty()) {
    for (const std::uint64_t way : {0, 1}) {
      const Slot& known = slots_[(hash ^ way) & (slots_.size() - 1)];
      if (known.length != slot.length || std::memcmp(known.bytes, slot.bytes, sizeof(slot.bytes)) != 0) continue;
      ids.insert(ids.end(), known.ids, known.ids + known.num_ids);
      return;
    }
  }
  const std::size_t before = ids.size();
  append_by_model(piece, ids);
  if (ids.size() - before > std::size(slot.ids)) return;
  slot.num_ids = static_cast<std::uint8_t>(ids.size() - before);
  std::copy(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end(), slot.ids);
  if (slots_.size() < most_slots && 2 * num_known_ >= slots_.size()) grow();
  remember(slot, hash);
}

// Of two slots the first that is free, or the one that the hash says: one piece is forgotten, never all.
void Encoder::remember(const Slot& slot, std::uint64_t hash) {
  const std::size_t mask = slots_.size() - 1;
  std::size_t place = hash & mask;
  if (slots_[place].length != 0 && (slots_[place ^ 1].length == 0 || (hash >> 63) != 0)) place ^= 1;
  num_known_ += slots_[place].length == 0 ? 1 : 0;
  slots_[place] = slot;
}

void Encoder::grow() {
  std::vector<Slot> old(std::max(fewest_slots, 4 * slots_.size()));
  std::swap(old, slots_);
  num_known_ = 0;
  for (const Slot& slot : old) {
    if (slot.length > 0) remember(slot, hash_of({slot.bytes, slot.length}));
  }
}

}  // namespace echelon
