// Which bytes of a rendered conversation loss falls on, by where they came from.
#pragma once

#include "data/chat/chat_options.h"
#include "data/chat/conversation.h"
#include "data/template/chat_template.h"
#include "data/tokenizer/tokenizer.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace echelon {

struct MarkedText {
  jinja::Text text;
  std::vector<std::uint8_t> is_trained;  // by byte
};

/// Sources of a model's templates.
struct ChatTemplates {
  std::string main;
  std::string tool_use = {};  // of conversations with tools; empty: the same
  bool operator==(const ChatTemplates&) const = default;
};

/// Renders conversations. Bytes of origin 0 are the template's; only they make control tokens.
class ChatRenderer {
 public:
  static constexpr std::size_t nowhere = std::string::npos;

  ChatRenderer(const Tokenizer& tokenizer, const ChatTemplates& sources, jinja::Map variables);

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
  /// Of a message: where its first byte is, and after its last one. An empty one is where a letter in it would be.
  struct Extent {
    std::size_t first = nowhere, end = nowhere;
    [[nodiscard]] bool exists() const { return first != nowhere; }
  };
  using Extents = std::vector<Extent>;
  struct KnownPrompts {
    // Bytes of a prompt after the message before it, by its role and what the template writes up to the answer.
    std::map<std::string, std::size_t> sizes;
    int num_rendered = 0;
  };

  [[nodiscard]] Extents extents(const jinja::Rendered& rendered, const Conversation& of,
                                const std::vector<bool>& chosen) const;
  void mark_generations(const jinja::Rendered& rendered, const std::vector<bool>& chosen, const Extents& extents,
                        MarkedText& marked) const;
  void mark_answer(const Conversation& of, std::size_t i, const Extents& extents, KnownPrompts& known,
                   MarkedText& marked) const;
  /// Where the prompt for message i ends, if the text starts with it; otherwise the end of the text. Prompts after
  /// other messages are equal if all around them is: each of these is rendered once, and a limited number in all.
  [[nodiscard]] std::size_t end_of_prompt(const Conversation& of, std::size_t i, const jinja::Text& text,
                                          const Extents& extents, KnownPrompts& known) const;
  [[nodiscard]] std::size_t rendered_prompt(const Conversation& of, std::size_t i, const jinja::Text& text,
                                            KnownPrompts& known) const;
  [[nodiscard]] bool add_ending(const Conversation& of, std::size_t end, MarkedText& marked) const;
  [[nodiscard]] Ending ending_at(const jinja::Text& text, std::size_t at) const;

  const Tokenizer& tokenizer_;
  jinja::ChatTemplate template_, tool_use_;
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
