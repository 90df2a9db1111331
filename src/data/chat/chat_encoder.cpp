#include "data/chat/chat_encoder.h"

#include "base/error.h"
#include "base/text/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace echelon {
namespace {

jinja::Map variables_of(const std::string& tokenizer_path) {
  jinja::Map variables;
  for (const auto& [name, token] : named_tokens(tokenizer_path)) variables.set(jinja::Text(name), jinja::Text(token));
  return variables;
}

/// Cut off.
std::string why_nothing_is_trained(const Conversation& conversation) {
  const auto chosen = std::ranges::find(conversation.is_trained, true);
  if (chosen != conversation.is_trained.end())
    return fmt::format("the template writes nothing of message {}", chosen - conversation.is_trained.begin() + 1);
  std::set<std::string> roles;
  for (const auto& one : conversation.messages) roles.insert(one.at("role").get<std::string>());
  if (roles.contains("assistant")) return "the weight of each answer is 0";
  return fmt::format("loss falls on role \"assistant\", and its roles are {}",
                     printable(fmt::format("{}", fmt::join(roles, ", ")), 100));
}

}  // namespace

ChatEncoder::ChatEncoder(const Tokenizer& tokenizer, const std::string& tokenizer_path, const ChatTemplates& templates,
                         TrainOn on)
    : tokenizer_(tokenizer),
      encoder_(tokenizer, false),
      renderer_(tokenizer, templates, variables_of(tokenizer_path)),
      on_(on) {}

EncodedChat ChatEncoder::encode(const Conversation& conversation) {
  const MarkedText marked = renderer_.marked(conversation, on_);
  EncodedChat chat;
  for (const EncodedRun& run : encoder_.append_filtered(marked.text.bytes, TemplateOnly(marked.text), chat.ids))
    mark_run(marked, run, chat);
  require(std::ranges::count(chat.is_trained, 1) > 0, "the conversation has nothing to train on: {}",
          why_nothing_is_trained(conversation));
  return chat;
}

std::vector<std::int32_t> ChatEncoder::encode_prompt(const Conversation& conversation) {
  const jinja::Text text = renderer_.render(conversation, true).text;
  std::vector<std::int32_t> ids;
  (void)encoder_.append_filtered(text.bytes, TemplateOnly(text), ids);
  return ids;
}

std::int32_t ChatEncoder::end_of_turn() {
  const EncodedChat chat = encode(read_conversation(R"({"prompt": "x", "completion": "x"})"));
  std::int32_t added = -1, special = -1;
  for (std::size_t i = 0; i < chat.ids.size(); ++i) {
    if (chat.is_trained[i] == 0) continue;  // a template may write more after an answer
    const auto token = std::ranges::find(tokenizer_.spec().added, chat.ids[i], &AddedToken::id);
    if (token == tokenizer_.spec().added.end()) continue;  // it may mark a newline after the token
    (token->is_special ? special : added) = token->id;
  }
  require(special >= 0 || added >= 0,
          "no special token of the tokenizer ends an answer of the template; use a template of the model's own tokens, "
          "or chatml or llama3 if it has theirs");
  return special >= 0 ? special : added;
}

/// A token is trained if one of its bytes is.
void ChatEncoder::mark_run(const MarkedText& text, const EncodedRun& run, EncodedChat& chat) {
  const std::uint8_t *first = text.is_trained.data() + run.begin, *end = text.is_trained.data() + run.end;
  const std::size_t done = chat.is_trained.size();
  const std::string_view bytes = std::string_view(text.text.bytes).substr(run.begin, run.end - run.begin);
  const std::span ids = std::span(chat.ids).subspan(done, run.num_ids);
  if (run.num_ids <= 1 || std::count(first, end, *first) == end - first) {
    chat.is_trained.insert(chat.is_trained.end(), run.num_ids, *std::max_element(first, end));
    return;
  }
  std::string decoded;
  for (const std::int32_t id : ids) decoded += tokenizer_.bytes(id);
  if (decoded == bytes) {
    for (const std::int32_t id : ids) {
      const std::size_t size = tokenizer_.bytes(id).size();
      chat.is_trained.push_back(size == 0 ? *first : *std::max_element(first, first + size));
      first += size;
    }
    return;
  }
  // Tokens of a normalized text: those before a byte are the ones that the text up to it shares with the whole.
  chat.is_trained.resize(done + run.num_ids, 0);
  std::vector<std::int32_t> before;
  for (const std::uint8_t* start = std::find(first, end, 1); start != end;) {
    const std::uint8_t* stop = std::find(start, end, 0);
    const auto index_of = [&](const std::uint8_t* at, bool takes_part) {
      before.clear();
      encoder_.append_run(bytes.substr(0, static_cast<std::size_t>(at - first)), run.begin == 0, before);
      const auto shared = std::ranges::mismatch(ids, before).in1 - ids.begin();
      return shared + (takes_part && shared < std::ssize(before) && shared < std::ssize(ids) ? 1 : 0);
    };
    const auto from = chat.is_trained.begin() + static_cast<std::ptrdiff_t>(done);
    std::fill(from + index_of(start, false), from + index_of(stop, true), 1);
    start = std::find(stop, end, 1);
  }
}

}  // namespace echelon
