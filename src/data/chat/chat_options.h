// How conversations become tokens.
#pragma once

#include <cstdint>
#include <string>

namespace echelon {

// In the order of the command's names.

/// What loss falls on: what assistants wrote, only the last of them, or everything.
enum class TrainOn : std::uint8_t { assistant, last, all };
/// What becomes of a conversation of more than max_tokens.
enum class TooLong : std::uint8_t { refuse, truncate, drop };

struct ChatOptions {
  bool is_on = false;         // lines of JSON are conversations
  std::string template_name;  // a file, chatml or llama3; empty: the template in the tokenizer's folder
  TrainOn train_on = TrainOn::assistant;
  std::int64_t max_tokens = 0;  // 0: any
  TooLong too_long = TooLong::refuse;
};

}  // namespace echelon
