#include "data/chat/chat_preparation.h"

#include "base/error.h"

#include <algorithm>

namespace echelon {

void ChatPreparation::add(Split split, std::string_view line, SplitWriter& writer, PrepareResult& result) {
  const Conversation conversation = read_conversation(line);
  const std::string_view format = name_of(conversation.format);
  if (result.chat_format.empty()) result.chat_format = format;
  require(result.chat_format == format, "a conversation in {} after others in {}", format, result.chat_format);
  EncodedChat chat = encoder_.encode(conversation);
  const auto most = static_cast<std::size_t>(options_.max_tokens);
  if (most > 0 && chat.ids.size() > most) {
    require(options_.too_long != TooLong::refuse, "the conversation has {} tokens, more than --max-tokens={}",
            chat.ids.size(), most);
    ++result.num_too_long;
    if (options_.too_long == TooLong::drop) return;
    chat.ids.resize(most);
    chat.is_trained.resize(most);
    if (std::ranges::count(chat.is_trained, 1) == 0) {
      ++result.num_untrained;
      return;
    }
  }
  writer.add_encoded(split, chat, static_cast<std::int64_t>(line.size()));
}

}  // namespace echelon
