// Tokens on disk in Megatron-LM's format: PREFIX.bin stores the sequences of tokens one after another, PREFIX.idx the
// offset of each.
//
//   PREFIX.idx, little-endian:  "MMIDIDX\0\0"   u64 version = 1   u8 token type   u64 sequences S
//                               u64 document bounds D
//                               i32 length[S] (tokens)   i64 pointer[S] (bytes into .bin)
//                               i64 document_bound[D] (sequences; 0 ... S)
#pragma once

#include "data/files/durable_file.h"
#include "files/file.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// The type codes of the .idx file. The format also defines 6 and 7 (floats), which are not tokens.
enum class TokenType : std::uint8_t { u8 = 1, i8 = 2, i16 = 3, i32 = 4, i64 = 5, u16 = 8 };

[[nodiscard]] std::int64_t size_bytes(TokenType type);
[[nodiscard]] std::string_view name_of(TokenType type);  // "u16"

/// u16 if it holds every id below vocab_size, else i32.
[[nodiscard]] TokenType token_type_for(std::int64_t vocab_size);

/// All sequences of PREFIX.bin as one stream of tokens. Reads are const and safe from many threads.
class IndexedDataset {
 public:
  /// Reads the index, and checks sizes, counts and every offset. Throws Error naming the file and the fault.
  explicit IndexedDataset(const std::string& prefix);

  [[nodiscard]] const std::string& prefix() const { return prefix_; }
  [[nodiscard]] TokenType token_type() const { return type_; }
  [[nodiscard]] std::int64_t num_tokens() const { return document_starts_.back(); }
  [[nodiscard]] std::int64_t num_sequences() const { return num_sequences_; }
  [[nodiscard]] std::int64_t num_documents() const { return std::ssize(document_starts_) - 1; }
  /// Index in the stream of the first token of document d, 0 <= d <= num_documents(); for the last d it is
  /// num_tokens().
  [[nodiscard]] std::int64_t document_start(std::int64_t document) const {
    return document_starts_[static_cast<std::size_t>(document)];
  }
  /// The document of a token of the stream.
  [[nodiscard]] std::int64_t document_of(std::int64_t token) const;

  /// Copies stream tokens [first, first + out.size()), which must be in range. Throws Error on a token that is negative
  /// or exceeds int32, and if the file has become shorter.
  void read(std::int64_t first, std::span<std::int32_t> out) const;

 private:
  void read_index(std::string_view index);

  std::string prefix_;
  TokenType type_ = TokenType::i32;
  File tokens_;
  std::int64_t num_sequences_ = 0;
  std::vector<std::int64_t> document_starts_;  // in the stream, and the end
};

/// Writes PREFIX.bin and PREFIX.idx; neither name exists before publish() has flushed both to disk. Throws Failure on a
/// full disk or a folder that cannot be written.
class IndexedDatasetWriter {
 public:
  IndexedDatasetWriter(std::string prefix, TokenType type);

  /// Appends one document of one sequence. Throws Error on ids that the token type cannot hold.
  void add_document(std::span<const std::int32_t> tokens);
  void publish();

  [[nodiscard]] std::int64_t num_tokens() const { return num_tokens_; }
  [[nodiscard]] std::int64_t num_documents() const { return static_cast<std::int64_t>(lengths_.size()); }

 private:
  std::string prefix_;
  TokenType type_;
  DurableFile tokens_;
  DurableFile index_;
  std::vector<std::int32_t> lengths_;
  std::int64_t num_tokens_ = 0;
};

/// Throws Error if one of the dataset's first `most_tokens` tokens is not below `vocab_size`.
void require_tokens_below(std::int64_t vocab_size, const IndexedDataset& dataset, std::int64_t most_tokens);

/// Entropy of the tokens' frequencies in nats: the loss of a model that predicts each token by its frequency. 0 without
/// tokens.
[[nodiscard]] double unigram_entropy(const IndexedDataset& dataset);

}  // namespace echelon
