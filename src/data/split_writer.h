// Encodes documents on several threads and writes the token files of both splits, in the order of the documents.
#pragma once

#include "data/chat/chat_encoder.h"
#include "data/corpus.h"
#include "data/indexed_dataset.h"
#include "data/loss_mask.h"
#include "data/tokenizer/encoder.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// What is put around the tokens of every document.
struct DocumentFrame {
  std::vector<std::int32_t> before, after;
};

struct SplitCounts {
  std::int64_t num_documents = 0;
  std::int64_t num_bytes = 0;
  std::int64_t num_tokens = 0;  // with separators
};

class SplitWriter {
 public:
  struct Options {
    bool parses_control = false;  // otherwise control tokens in documents are text
    int num_threads = 1;
  };
  /// The files are FOLDER/train.{bin,idx} and FOLDER/validation.{bin,idx}, once published.
  SplitWriter(const std::string& folder, const Tokenizer& tokenizer, DocumentFrame frame, Options options);

  /// Copies the document; it is encoded later, with others.
  void add(Split split, std::string_view document);
  /// A document that is encoded already, with whether loss falls on each token: for all documents or none.
  void add_encoded(Split split, const EncodedChat& chat, std::int64_t num_bytes);
  /// Encodes and writes what was added.
  void flush();
  /// The validation split has files only if it has tokens.
  void publish();
  [[nodiscard]] SplitCounts counts(Split split) const;
  [[nodiscard]] std::int64_t num_control_as_text() const;
  /// Of all tokens that are written so far; -1 before the first.
  [[nodiscard]] std::int32_t largest_id() const { return largest_id_; }

 private:
  struct Document {
    Split split;
    std::string text;
    std::vector<std::int32_t> ids;
  };
  void encode(Encoder& encoder, Document& document) const;
  void write(Split split, const std::vector<std::int32_t>& ids);

  DocumentFrame frame_;
  std::vector<Encoder> encoders_;  // one of each thread
  IndexedDatasetWriter train_, validation_;
  std::int64_t num_bytes_[2] = {};
  std::string prefixes_[2];
  std::optional<LossMaskWriter> masks_[2];  // of splits with a document that came with one
  std::vector<Document> waiting_;
  std::size_t waiting_bytes_ = 0;
  std::int32_t largest_id_ = -1;
};

}  // namespace echelon
