// A line of JSON as a conversation.
#pragma once

#include <nlohmann/json.hpp>

#include <string_view>
#include <vector>

namespace echelon {

/// The fields in which conversations are published.
enum class ChatFormat : std::uint8_t { messages, prompt_completion, sharegpt, alpaca };
[[nodiscard]] std::string_view name_of(ChatFormat format);

struct Conversation {
  ChatFormat format{};
  nlohmann::ordered_json messages;  // objects with "role" and, unless it is a call of tools, "content"
  nlohmann::ordered_json tools;     // null if there are none
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();  // of the template ("chat_template_kwargs")
  std::vector<bool> is_trained;   // by message: of the assistant, and its weight is not 0
  std::vector<bool> is_left_out;  // by message: its weight is 0
};

/// Throws Error with what is wrong.
[[nodiscard]] Conversation read_conversation(std::string_view line);

}  // namespace echelon
