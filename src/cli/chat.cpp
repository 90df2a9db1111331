#include "cli/chat.h"

#include "base/error.h"
#include "base/text/printable.h"
#include "base/text/tell.h"
#include "base/text/utf8.h"
#include "checkpoint/model_reader.h"
#include "checkpoint/model_tokenizer.h"
#include "data/chat/chat_encoder.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace echelon {
namespace {

constexpr double patience_seconds = 1e7;  // ranks with other experts wait while a user writes

/// A model with the conversation so far.
class Chat {
 public:
  Chat(GenerateOptions options, const std::string& given, bool json)
      : options_(std::move(options)),
        path_(tokenizer_in(options_.model).string()),
        tokenizer_(Tokenizer::load(path_)),
        encoder_(tokenizer_, path_, chat_templates_of(path_, given), TrainOn::assistant),
        json_(json) {
    options_.stop_tokens = {encoder_.end_of_turn()};
    options_.timeout_seconds = patience_seconds;
    if (json) return;
    options_.on_text = [](std::string_view text) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    };
  }

  /// Answers the message, or each line of standard input if it is empty.
  void run(const std::string& only) {
    generate_each(
        options_, tokenizer_, [&] { return next_line(only) ? std::optional(prompt()) : std::nullopt; },
        [&](const Generation& answer) { show(answer); });
  }

 private:
  bool next_line(const std::string& only) {
    if (!only.empty()) return line_ != std::exchange(line_, only);
    while (true) {
      if (isatty(STDIN_FILENO) != 0) tell("> ");
      if (!std::getline(std::cin, line_)) return false;
      if (line_.find_first_not_of(" \t\r") != std::string::npos) return true;
    }
  }

  std::vector<std::int32_t> prompt() {
    require(valid_utf8_prefix(line_) == line_.size(), "message {} is not UTF-8 from its byte {} on",
            conversation_.messages.size() / 2 + 1, valid_utf8_prefix(line_) + 1);
    for (const AddedToken& token : tokenizer_.spec().added)
      if (token.is_special && line_.find(token.content) != std::string::npos)
        tell("note: '{}' in a message is text, not a control token\n", printable(token.content));
    add("user", line_);
    std::vector<std::int32_t> tokens = encoder_.encode_prompt(conversation_);
    require(!tokens.empty(),
            "the chat template writes nothing for this conversation; name another with --chat-template");
    return tokens;
  }

  void show(const Generation& answer) {
    if (!answer.note.empty() && conversation_.messages.size() == 1) tell("note: {}\n", answer.note);
    json_ ? print_json(line_, answer) : fmt::print("\n");
    std::fflush(stdout);
    // Bytes of a character that is not whole are not JSON.
    add("assistant", answer.text.substr(0, valid_utf8_prefix(answer.text)));
  }

  void add(std::string_view role, const std::string& content) {
    conversation_.messages.push_back({{"role", role}, {"content", content}});
    conversation_.is_trained.push_back(false);
    conversation_.is_left_out.push_back(false);
  }

  GenerateOptions options_;
  std::string path_;
  Tokenizer tokenizer_;
  ChatEncoder encoder_;
  Conversation conversation_{
      .messages = nlohmann::ordered_json::array(), .tools = nullptr, .is_trained = {}, .is_left_out = {}};
  std::string line_;
  bool json_;
};

}  // namespace

void print_json(const std::string& prompt, const Generation& generation) {
  const nlohmann::ordered_json json = {{"prompt", prompt},
                                       {"text", generation.text},
                                       {"tokens", generation.tokens},
                                       {"finish_reason", generation.is_ended ? "stop" : "length"},
                                       {"num_prompt_tokens", generation.num_prompt_tokens},
                                       {"num_new_tokens", generation.tokens.size()},
                                       {"device", generation.device}};
  fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

ExitStatus run_chat(GenerateOptions options, const std::string& given, bool json) {
  const std::string prompt = options.prompt;
  (void)read_model_spec(options.model);  // what is wrong with the model comes before what is wrong with its tokenizer
  Chat(std::move(options), given, json).run(prompt);
  return ExitStatus::success;
}

}  // namespace echelon
