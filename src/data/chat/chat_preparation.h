// Conversations on their way from lines of JSON to the files of a corpus.
#pragma once

#include "data/chat/chat_encoder.h"
#include "data/prepare.h"

namespace echelon {

class ChatPreparation {
 public:
  ChatPreparation(const ChatOptions& options, const Tokenizer& tokenizer, const std::string& tokenizer_path)
      : options_(options),
        encoder_(tokenizer, tokenizer_path, chat_template_of(tokenizer_path, options.template_name), options.train_on) {
  }

  /// Throws Error if the line is not a conversation, or of other fields than the first.
  void add(Split split, std::string_view line, SplitWriter& writer, PrepareResult& result);

 private:
  ChatOptions options_;
  ChatEncoder encoder_;
};

}  // namespace echelon
