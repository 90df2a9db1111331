#include "data/chat/chat_encoder.h"

#include "base/error.h"

#include <algorithm>

namespace echelon {
namespace {

using jinja::Text;
constexpr char32_t origin_of_role = 1, first_origin = 2;  // message i has first_origin + i

/// Roles and names of fields are no one's text.
jinja::Value message_value(const nlohmann::ordered_json& message, std::size_t i) {
  jinja::Map map;
  for (const auto& [key, value] : message.items())
    map.set(Text(key, origin_of_role),
            jinja::value_of(value, key == "role" ? origin_of_role : first_origin + static_cast<char32_t>(i)));
  return jinja::Value::map(std::move(map));
}

jinja::Map with_messages(jinja::Map variables, const Conversation& conversation) {
  std::vector<jinja::Value> messages;
  for (std::size_t i = 0; i < conversation.messages.size(); ++i)
    messages.push_back(message_value(conversation.messages[i], i));
  variables.set(Text("messages"), jinja::Value::list(std::move(messages)));
  variables.set(Text("add_generation_prompt"), false);
  if (!conversation.tools.is_null()) variables.set(Text("tools"), jinja::value_of(conversation.tools, origin_of_role));
  return variables;
}

/// Of the messages that loss falls on.
std::vector<bool> chosen_of(const Conversation& conversation, TrainOn on) {
  std::vector<bool> chosen = conversation.is_trained;
  if (on != TrainOn::last) return chosen;
  const auto last = std::find(chosen.rbegin(), chosen.rend(), true);
  if (last != chosen.rend()) std::fill(last + 1, chosen.rend(), false);
  return chosen;
}

}  // namespace

ChatEncoder::ChatEncoder(const Tokenizer& tokenizer, const std::string& tokenizer_path, const std::string& source,
                         TrainOn on)
    : tokenizer_(tokenizer), encoder_(tokenizer, false), template_(source), on_(on) {
  for (const auto& [name, token] : named_tokens(tokenizer_path)) variables_.set(Text(name), Text(token));
}

const AddedToken* ChatEncoder::control_at(const Text& text, std::size_t at) const {
  const AddedToken* longest = nullptr;
  for (const AddedToken& token : tokenizer_.spec().added) {
    const std::size_t size = token.content.size();
    if (!token.is_special || size == 0 || (longest && size <= longest->content.size())) continue;
    const bool is_here = text.bytes.compare(at, size, token.content) == 0;
    if (is_here && text.origins.find_first_not_of(U'\0', at) >= at + size) longest = &token;
  }
  return longest;
}

/// From the first byte of a message to the control token that ends its turn.
std::vector<std::uint8_t> ChatEncoder::trained_bytes(const jinja::Rendered& rendered, const Conversation& of) const {
  const Text& text = rendered.text;
  std::vector<std::uint8_t> trained(text.bytes.size(), on_ == TrainOn::all ? 1 : 0);
  if (on_ == TrainOn::all) return trained;
  const std::vector<bool> chosen = chosen_of(of, on_);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const char32_t origin = first_origin + static_cast<char32_t>(i);
    const std::size_t first = text.origins.find(origin);
    if (!chosen[i] || first == std::string::npos) continue;
    const auto span = std::find_if(rendered.generations.begin(), rendered.generations.end(),
                                   [&](const auto& s) { return s.first <= first && first < s.second; });
    if (span != rendered.generations.end()) {
      std::fill(trained.begin() + std::ptrdiff_t(span->first), trained.begin() + std::ptrdiff_t(span->second), 1);
      continue;
    }
    require(rendered.generations.empty(), "message {} is outside {{% generation %}}", i + 1);
    std::size_t end = text.origins.rfind(origin) + 1;
    const AddedToken* control = nullptr;
    while (end < text.bytes.size() && text.origins[end] == 0 && !(control = control_at(text, end))) ++end;
    require(control != nullptr,
            "no control token ends message {}, so a model would not learn to stop: after it the template writes '{}', "
            "which has no special token of the tokenizer",
            i + 1, text.bytes.substr(text.origins.rfind(origin) + 1, end - text.origins.rfind(origin) - 1));
    end += control->content.size();
    std::fill(trained.begin() + std::ptrdiff_t(first), trained.begin() + std::ptrdiff_t(end), 1);
  }
  return trained;
}

/// Text without control tokens. Tokens that are the text's bytes are trained if one of their bytes is; otherwise the
/// text is encoded in parts.
void ChatEncoder::append_text(std::string_view text, const std::uint8_t* is_trained, EncodedChat& chat) {
  if (text.empty()) return;
  std::vector<std::int32_t> ids;
  encoder_.append(text, ids);
  std::string bytes;
  for (const std::int32_t id : ids) bytes += tokenizer_.bytes(id);
  const std::uint8_t* end = is_trained + text.size();
  if (bytes == text || std::all_of(is_trained, end, [&](std::uint8_t t) { return t == *is_trained; })) {
    for (const std::int32_t id : ids) {
      const std::size_t size = bytes == text ? tokenizer_.bytes(id).size() : 0;
      chat.ids.push_back(id);
      chat.is_trained.push_back(size == 0 ? *is_trained : *std::max_element(is_trained, is_trained + size));
      is_trained += size;
    }
    return;
  }
  const auto size = static_cast<std::size_t>(std::find(is_trained, end, *is_trained == 0 ? 1 : 0) - is_trained);
  append_text(text.substr(0, size), is_trained, chat);
  append_text(text.substr(size), is_trained + size, chat);
}

EncodedChat ChatEncoder::encode(const Conversation& conversation) {
  const jinja::Rendered rendered = template_.render(with_messages(variables_, conversation));
  const Text& text = rendered.text;
  const std::vector<std::uint8_t> trained = trained_bytes(rendered, conversation);
  EncodedChat chat;
  std::size_t done = 0;
  const auto flush = [&](std::size_t end) {
    append_text(std::string_view(text.bytes).substr(done, end - done), trained.data() + done, chat);
  };
  for (std::size_t at = 0; at < text.bytes.size();) {
    const AddedToken* control = text.origins[at] == 0 ? control_at(text, at) : nullptr;
    if (!control) {
      ++at;
      continue;
    }
    flush(at);
    chat.ids.push_back(control->id);
    chat.is_trained.push_back(trained[at]);
    done = at += control->content.size();
  }
  flush(text.bytes.size());
  require(std::count(chat.is_trained.begin(), chat.is_trained.end(), 1) > 0,
          "the conversation has nothing to train on");
  return chat;
}

}  // namespace echelon
