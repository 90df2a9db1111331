// Conversations as tokens, each with whether loss falls on it.
#pragma once

#include "data/chat/chat_options.h"
#include "data/chat/conversation.h"
#include "data/template/chat_template.h"
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

/// The template of a tokenizer's folder: chat_template.jinja, or chat_template of tokenizer_config.json. `given` is a
/// file, or "chatml" or "llama3", which are built in; empty: the folder's. Throws Error if there is none.
[[nodiscard]] std::string chat_template_of(const std::string& tokenizer_path, const std::string& given);

/// bos_token, eos_token, pad_token and unk_token of the folder of a tokenizer, those that it names.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> named_tokens(const std::string& tokenizer_path);

/// For one thread; the tokenizer must outlive it.
class ChatEncoder {
 public:
  /// `tokenizer_path` names the tokens that templates know, such as bos_token.
  ChatEncoder(const Tokenizer& tokenizer, const std::string& tokenizer_path, const std::string& source, TrainOn on);

  /// Control tokens come from the template only. Throws Error if the template refuses or nothing would be trained.
  [[nodiscard]] EncodedChat encode(const Conversation& conversation);

 private:
  [[nodiscard]] std::vector<std::uint8_t> trained_bytes(const jinja::Rendered& rendered, const Conversation& of) const;
  void append_text(std::string_view text, const std::uint8_t* is_trained, EncodedChat& chat);
  /// The control token of the template that starts at this byte, or null.
  [[nodiscard]] const AddedToken* control_at(const jinja::Text& text, std::size_t at) const;

  const Tokenizer& tokenizer_;
  Encoder encoder_;
  jinja::ChatTemplate template_;
  jinja::Map variables_;
  TrainOn on_;
};

}  // namespace echelon
