// Which bytes of a rendered conversation loss falls on, by where they came from.
#pragma once

#include "data/chat/chat_options.h"
#include "data/chat/conversation.h"
#include "data/template/chat_template.h"
#include "data/tokenizer/tokenizer.h"

#include <cstdint>
#include <vector>

namespace echelon {

struct MarkedText {
  jinja::Text text;
  std::vector<std::uint8_t> is_trained;  // by byte
};

/// Renders conversations. Bytes of origin 0 are the template's; only they make control tokens.
class ChatRenderer {
 public:
  ChatRenderer(const Tokenizer& tokenizer, std::string_view source, jinja::Map variables)
      : tokenizer_(tokenizer), template_(source), variables_(std::move(variables)) {}

  [[nodiscard]] jinja::Rendered render(const Conversation& conversation, bool adds_prompt = false) const;

  /// An answer is trained as {% generation %} says. Without it: from the end of its prompt, or else its first byte, to
  /// the control token that ends its turn, also if the answer is empty. If nothing ends the last answer, it gets what
  /// would end it before another message of a user, or the token that ends a sequence. Throws Error if neither is
  /// known.
  [[nodiscard]] MarkedText marked(const Conversation& conversation, TrainOn on) const;

 private:
  struct Ending {
    std::size_t size = 0;  // bytes after the answer, with the token
    bool is_found = false;
  };
  [[nodiscard]] std::vector<std::size_t> places(const jinja::Rendered& rendered, const Conversation& of,
                                                const std::vector<bool>& chosen) const;
  void mark_generations(const jinja::Rendered& rendered, const std::vector<bool>& chosen,
                        const std::vector<std::size_t>& places, MarkedText& marked) const;
  void mark_answer(const Conversation& of, std::size_t i, std::size_t place, MarkedText& marked) const;
  [[nodiscard]] std::size_t end_of_prompt(const Conversation& of, std::size_t i, const jinja::Text& text) const;
  [[nodiscard]] bool add_ending(const Conversation& of, std::size_t end, MarkedText& marked) const;
  [[nodiscard]] Ending ending_at(const jinja::Text& text, std::size_t at) const;

  const Tokenizer& tokenizer_;
  jinja::ChatTemplate template_;
  jinja::Map variables_;
};

/// After the last byte of a message, or its place if it is empty.
[[nodiscard]] std::size_t end_of_message(const jinja::Text& text, std::size_t message, std::size_t place);

/// Control tokens are the template's only.
class TemplateOnly : public ControlFilter {
 public:
  explicit TemplateOnly(const jinja::Text& text) : text_(text) {}
  [[nodiscard]] bool allows(std::size_t begin, std::size_t end) const override {
    return text_.origins.find_first_not_of(U'\0', begin) >= end;
  }

 private:
  const jinja::Text& text_;
};

}  // namespace echelon
