#include "data/indexed_dataset.h"

#include "base/error.h"
#include "data/files/mapped_file.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>

namespace echelon {
namespace {

constexpr std::string_view magic("MMIDIDX\0\0", 9);
constexpr std::size_t header_bytes = 34;

// The arrays start at unaligned offsets, so they are copied, never cast.
template <class T>
T load(std::string_view bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

TokenType parse_type(std::uint8_t code, const std::string& name) {
  switch (static_cast<TokenType>(code)) {
    case TokenType::u8:
    case TokenType::i8:
    case TokenType::i16:
    case TokenType::i32:
    case TokenType::i64:
    case TokenType::u16: return static_cast<TokenType>(code);
  }
  throw Error(fmt::format("{} has token type code {}; known are 1 (u8), 2 (i8), 3 (i16), 4 (i32), 5 (i64) and 8 (u16)",
                          name, code));
}

template <class T>
bool copy_tokens(const char* from, std::span<std::int32_t> out) {
  bool in_range = true;
  for (std::size_t i = 0; i < out.size(); ++i) {
    T token;
    std::memcpy(&token, from + i * sizeof(T), sizeof(T));
    if constexpr (std::is_signed_v<T>) in_range &= token >= 0;
    if constexpr (sizeof(T) > 4) in_range &= token <= std::numeric_limits<std::int32_t>::max();
    out[i] = static_cast<std::int32_t>(token);
  }
  return in_range;
}

bool copy_tokens(TokenType type, const char* from, std::span<std::int32_t> out) {
  switch (type) {
    case TokenType::u8: return copy_tokens<std::uint8_t>(from, out);
    case TokenType::i8: return copy_tokens<std::int8_t>(from, out);
    case TokenType::i16: return copy_tokens<std::int16_t>(from, out);
    case TokenType::i32: return copy_tokens<std::int32_t>(from, out);
    case TokenType::i64: return copy_tokens<std::int64_t>(from, out);
    case TokenType::u16: return copy_tokens<std::uint16_t>(from, out);
  }
  return false;
}

/// Calls visit(tokens) with the first `count` tokens of the stream, block by block.
template <class Visit>
void for_each_block(const IndexedDataset& dataset, std::int64_t count, Visit&& visit) {
  constexpr std::int64_t block_tokens = 1 << 16;
  std::vector<std::int32_t> block(block_tokens);
  for (std::int64_t first = 0; first < count; first += block_tokens) {
    const std::span<std::int32_t> tokens(block.data(), static_cast<std::size_t>(std::min(block_tokens, count - first)));
    dataset.read(first, tokens);
    visit(tokens);
  }
}

}  // namespace

std::int64_t size_bytes(TokenType type) {
  switch (type) {
    case TokenType::u8:
    case TokenType::i8: return 1;
    case TokenType::i16:
    case TokenType::u16: return 2;
    case TokenType::i32: return 4;
    case TokenType::i64: return 8;
  }
  return 0;
}

std::string_view name_of(TokenType type) {
  switch (type) {
    case TokenType::u8: return "u8";
    case TokenType::i8: return "i8";
    case TokenType::i16: return "i16";
    case TokenType::u16: return "u16";
    case TokenType::i32: return "i32";
    case TokenType::i64: return "i64";
  }
  return "?";
}

TokenType token_type_for(std::int64_t vocab_size) { return vocab_size <= 65536 ? TokenType::u16 : TokenType::i32; }

IndexedDataset::IndexedDataset(const std::string& prefix)
    : prefix_(prefix), tokens_(File::open_to_read(prefix + ".bin")) {
  const MappedFile index(prefix + ".idx");
  read_index(index.bytes());
}

void IndexedDataset::read_index(std::string_view index) {
  const std::string name = prefix_ + ".idx";
  require(index.size() >= header_bytes && index.substr(0, magic.size()) == magic,
          "{} is not a token index: it does not start with MMIDIDX and a full header", name);
  const auto version = load<std::uint64_t>(index, 9);
  require(version == 1, "{} has version {}; this program reads version 1", name, version);
  type_ = parse_type(load<std::uint8_t>(index, 17), name);
  const auto sequences = load<std::uint64_t>(index, 18);
  const auto bounds = load<std::uint64_t>(index, 26);
  const std::size_t body = index.size() - header_bytes;
  const bool fits = sequences <= body / 12 && bounds <= (body - sequences * 12) / 8;
  const std::size_t modes = fits ? body - sequences * 12 - bounds * 8 : 0;  // i8 per sequence in multimodal sets
  require(fits && (modes == 0 || modes == sequences),
          "{} has {} bytes, but {} sequences and {} document bounds need another size", name, index.size(), sequences,
          bounds);
  require(bounds >= 1, "{} has no document bounds", name);

  const std::int64_t bin_bytes = tokens_.num_bytes(), token_bytes = size_bytes(type_);
  std::vector<std::int64_t> starts = {0};  // of each sequence in the stream, and the end
  starts.reserve(sequences + 1);
  for (std::size_t i = 0; i < sequences; ++i) {
    const auto length = load<std::int32_t>(index, header_bytes + 4 * i);
    const auto pointer = load<std::int64_t>(index, header_bytes + 4 * sequences + 8 * i);
    require(length >= 0, "{}: sequence {} has length {}", name, i, length);
    require(pointer == starts.back() * token_bytes,
            "{}: sequence {} starts at byte {} of {}.bin, but those before it end at byte {}", name, i, pointer,
            prefix_, starts.back() * token_bytes);
    starts.push_back(starts.back() + length);
    require(starts.back() * token_bytes <= bin_bytes,
            "{}: sequence {} has {} bytes at byte {}, but {}.bin has {} bytes", name, i, length * token_bytes, pointer,
            prefix_, bin_bytes);
  }
  require(starts.back() * token_bytes == bin_bytes,
          "{}.bin has {} bytes, but {} describes {}; they do not belong together or one is cut off", prefix_, bin_bytes,
          name, starts.back() * token_bytes);

  num_sequences_ = static_cast<std::int64_t>(sequences);
  document_starts_.reserve(bounds);
  std::int64_t before = 0;
  for (std::size_t d = 0; d < bounds; ++d) {
    const auto bound = load<std::int64_t>(index, header_bytes + 12 * sequences + 8 * d);
    require(bound >= before && bound <= num_sequences_ && (d > 0 || bound == 0),
            "{}: document bound {} is {}, but must be in [{}, {}]", name, d, bound, before,
            d == 0 ? 0 : num_sequences_);
    document_starts_.push_back(starts[static_cast<std::size_t>(bound)]);
    before = bound;
  }
  require(before == num_sequences_, "{}: the documents end at sequence {} of {}", name, before, num_sequences_);
}

std::int64_t IndexedDataset::document_of(std::int64_t token) const {
  assert(token >= 0 && token < num_tokens());
  return std::ranges::upper_bound(document_starts_, token) - document_starts_.begin() - 1;
}

void IndexedDataset::read(std::int64_t first, std::span<std::int32_t> out) const {
  assert(first >= 0 && first + std::ssize(out) <= num_tokens());
  const std::int64_t token_bytes = size_bytes(type_);
  std::vector<char> bytes(out.size() * static_cast<std::size_t>(token_bytes));
  tokens_.read_at(first * token_bytes, bytes.data(), std::ssize(bytes));
  require(copy_tokens(type_, bytes.data(), out), "{}.bin holds a token outside [0, 2^31) among {} from token {}",
          prefix_, out.size(), first);
}

void require_tokens_below(std::int64_t vocab_size, const IndexedDataset& dataset, std::int64_t most_tokens) {
  for_each_block(dataset, std::min(most_tokens, dataset.num_tokens()), [&](std::span<const std::int32_t> tokens) {
    const std::int32_t largest = *std::max_element(tokens.begin(), tokens.end());
    require(largest < vocab_size,
            "{}.bin holds token {}, but model.vocab_size = {}; the data was made with another tokenizer",
            dataset.prefix(), largest, vocab_size);
  });
}

double unigram_entropy(const IndexedDataset& dataset) {
  std::unordered_map<std::int32_t, std::int64_t> counts;
  const std::int64_t num_tokens = dataset.num_tokens();
  for_each_block(dataset, num_tokens, [&](std::span<const std::int32_t> tokens) {
    for (const std::int32_t token : tokens) ++counts[token];
  });
  std::vector<std::int64_t> sorted;  // the order of a hash table must not affect the sum's last bits
  for (const auto& [token, count] : counts) sorted.push_back(count);
  std::sort(sorted.begin(), sorted.end());
  double entropy = 0;
  for (const std::int64_t count : sorted) {
    const double p = static_cast<double>(count) / static_cast<double>(num_tokens);
    entropy -= p * std::log(p);
  }
  return entropy;
}

}  // namespace echelon
