// Conversations on their way from lines of JSON to the files of a corpus, on several threads.
#pragma once

#include "data/chat/chat_encoder.h"
#include "data/prepare.h"

#include <optional>
#include <string>
#include <vector>

namespace echelon {

class ChatPreparation {
 public:
  /// It counts in the result. The corpus and all three must outlive it.
  ChatPreparation(const PrepareOptions& options, const Tokenizer& tokenizer, SplitWriter& writer,
                  PrepareResult& result);

  /// Copies the line; it is encoded later, with others. Throws Error of the first line that is no conversation, or of
  /// other fields than the first: of this one or of one that was added before.
  void add(const CorpusDocument& line);
  /// Encodes and writes what was added. Throws Error as add.
  void flush();

 private:
  struct Line {
    Split split{};
    std::string text;
    const CorpusFile* file = nullptr;
    std::int64_t number = 0;
    EncodedChat chat = {};
    bool is_too_long = false;
  };
  void encode(ChatEncoder& encoder, Line& line) const;
  void write(const Line& line);

  const ChatOptions& options_;
  SplitWriter& writer_;
  PrepareResult& result_;
  std::vector<ChatEncoder> encoders_;  // one of each thread
  std::optional<ChatFormat> format_;   // of the first line
  std::vector<Line> waiting_;
  std::size_t waiting_bytes_ = 0;
};

}  // namespace echelon
