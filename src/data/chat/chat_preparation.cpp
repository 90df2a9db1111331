#include "data/chat/chat_preparation.h"

#include "base/error.h"
#include "data/share_out.h"

#include <algorithm>
#include <utility>

namespace echelon {
namespace {

// Of a batch, for each thread: some hundredths of a second, in which nothing is reported.
constexpr std::size_t most_waiting_bytes = std::size_t{1} << 18, most_waiting_lines = 1 << 10;

}  // namespace

ChatPreparation::ChatPreparation(const PrepareOptions& options, const Tokenizer& tokenizer, SplitWriter& writer,
                                 PrepareResult& result)
    : options_(options.chat), writer_(writer), result_(result) {
  const ChatTemplates templates = chat_templates_of(options.tokenizer, options.chat.template_name);
  for (int i = 0; i < num_threads_of(options); ++i)
    encoders_.emplace_back(tokenizer, options.tokenizer, templates, options.chat.train_on);
}

void ChatPreparation::add(const CorpusDocument& line) {
  if (!format_) {
    format_ = named_in_errors(line.file, line.line, [&] { return read_conversation(line.text).format; });
    result_.chat_format = name_of(*format_);
  }
  waiting_.push_back({.split = line.split, .text = std::string(line.text), .file = &line.file, .number = line.line});
  waiting_bytes_ += line.text.size();
  if (waiting_bytes_ >= encoders_.size() * most_waiting_bytes ||
      waiting_.size() >= encoders_.size() * most_waiting_lines)
    flush();
}

void ChatPreparation::flush() {
  std::vector<Line> lines = std::exchange(waiting_, {});
  waiting_bytes_ = 0;
  share_out(encoders_, lines.size(), [&](ChatEncoder& encoder, std::size_t i) {
    named_in_errors(*lines[i].file, lines[i].number, [&] { encode(encoder, lines[i]); });
  });
  for (const Line& line : lines) write(line);
}

void ChatPreparation::encode(ChatEncoder& encoder, Line& line) const {
  const Conversation conversation = read_conversation(line.text);
  require(conversation.format == format_, "a conversation in {} after others in {}", name_of(conversation.format),
          result_.chat_format);
  line.chat = encoder.encode(conversation);
  const auto most = static_cast<std::size_t>(options_.max_tokens);
  line.is_too_long = most > 0 && line.chat.ids.size() > most;
  if (!line.is_too_long) return;
  require(options_.too_long != TooLong::refuse, "the conversation has {} tokens, more than --max-tokens={}",
          line.chat.ids.size(), most);
  line.chat.ids.resize(most);
  line.chat.is_trained.resize(most);
}

void ChatPreparation::write(const Line& line) {
  if (line.is_too_long) {
    ++result_.num_too_long;
    if (options_.too_long == TooLong::drop) return;
    if (std::ranges::count(line.chat.is_trained, 1) == 0) {
      ++result_.num_untrained;
      return;
    }
  }
  writer_.add_encoded(line.split, line.chat, static_cast<std::int64_t>(line.text.size()));
}

}  // namespace echelon
