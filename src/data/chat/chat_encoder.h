// Conversations as tokens, each with whether loss falls on it.
#pragma once

#include "data/chat/answer_spans.h"
#include "data/tokenizer/encoder.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace echelon {

struct EncodedChat {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> is_trained;
};

/// The templates of a tokenizer's folder, as transformers finds them: chat_template.jinja with those in
/// additional_chat_templates, or else chat_template of tokenizer_config.json. `given` is a file, or "chatml" or
/// "llama3", which are built in; empty: the folder's. Throws Error if there is none, or one is not UTF-8.
[[nodiscard]] ChatTemplates chat_templates_of(const std::string& tokenizer_path, const std::string& given);

/// bos_token, eos_token and the others that transformers gives to templates, of the folder of a tokenizer: those that
/// it names.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> named_tokens(const std::string& tokenizer_path);

/// For one thread; the tokenizer must outlive it.
class ChatEncoder {
 public:
  /// `tokenizer_path` names the tokens that templates know, such as bos_token.
  ChatEncoder(const Tokenizer& tokenizer, const std::string& tokenizer_path, const ChatTemplates& templates,
              TrainOn on);

  /// The library's ids, but control tokens come from the template only. Throws Error if the template refuses or
  /// nothing would be trained.
  [[nodiscard]] EncodedChat encode(const Conversation& conversation);
  /// A conversation and what the template writes before the next answer.
  [[nodiscard]] std::vector<std::int32_t> encode_prompt(const Conversation& conversation);
  /// The token after which a user writes again: the last control token that is trained. Throws Error as encode, and if
  /// no added token is trained.
  [[nodiscard]] std::int32_t end_of_turn();

 private:
  void mark_run(const MarkedText& text, const EncodedRun& run, EncodedChat& chat);

  const Tokenizer& tokenizer_;
  Encoder encoder_;
  ChatRenderer renderer_;
  TrainOn on_;
};

}  // namespace echelon
