#include "data/indexed_dataset.h"

#include "base/error.h"

#include <unistd.h>

#include <cstring>
#include <limits>
#include <utility>
#include <vector>

namespace echelon {
namespace {

std::int64_t largest(TokenType type) {
  switch (type) {
    case TokenType::u8: return std::numeric_limits<std::uint8_t>::max();
    case TokenType::i8: return std::numeric_limits<std::int8_t>::max();
    case TokenType::i16: return std::numeric_limits<std::int16_t>::max();
    case TokenType::u16: return std::numeric_limits<std::uint16_t>::max();
    case TokenType::i32:
    case TokenType::i64: return std::numeric_limits<std::int32_t>::max();
  }
  return 0;
}

template <class T>
void append(DurableFile& file, T value) {
  file.append(&value, sizeof(T));
}

}  // namespace

IndexedDatasetWriter::IndexedDatasetWriter(std::string prefix, TokenType type)
    : prefix_(std::move(prefix)), type_(type), tokens_(prefix_ + ".bin"), index_(prefix_ + ".idx") {}

void IndexedDatasetWriter::add_document(std::span<const std::int32_t> tokens) {
  require(tokens.size() <= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()),
          "a document of {} tokens is too long for {}.idx; split it", tokens.size(), prefix_);
  const auto width = static_cast<std::size_t>(size_bytes(type_));
  std::vector<char> bytes(tokens.size() * width);
  char* at = bytes.data();
  for (const std::int32_t token : tokens) {
    require(token >= 0 && token <= largest(type_), "token {} does not fit the token type of {}.bin", token, prefix_);
    const std::int64_t wide = token;
    std::memcpy(at, &wide, width);  // little-endian: the low bytes come first
    at += width;
  }
  tokens_.append(bytes.data(), bytes.size());
  lengths_.push_back(static_cast<std::int32_t>(tokens.size()));
  num_tokens_ += static_cast<std::int64_t>(tokens.size());
}

void IndexedDatasetWriter::publish() {
  index_.append("MMIDIDX\0\0", 9);
  append<std::uint64_t>(index_, 1);
  append(index_, type_);
  append<std::uint64_t>(index_, lengths_.size());
  append<std::uint64_t>(index_, lengths_.size() + 1);
  index_.append(lengths_.data(), lengths_.size() * sizeof(std::int32_t));
  std::int64_t pointer = 0;
  for (const std::int32_t length : lengths_) {
    append(index_, pointer);
    pointer += length * size_bytes(type_);
  }
  for (std::size_t d = 0; d <= lengths_.size(); ++d) append(index_, static_cast<std::int64_t>(d));
  index_.flush();
  tokens_.flush();
  unlink((prefix_ + ".idx").c_str());  // an older index must never coexist with the new tokens
  tokens_.publish();
  index_.publish();
}

}  // namespace echelon
