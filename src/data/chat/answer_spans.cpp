#include "data/chat/answer_spans.h"

#include "base/error.h"

#include <algorithm>
#include <array>

namespace echelon {
namespace {

using jinja::Text;
using OrderedJson = nlohmann::ordered_json;
constexpr char32_t origin_of_others = 1, first_origin = 2;  // message i has first_origin + i
constexpr std::string_view filler = "x";

char32_t origin_of(std::size_t message) { return first_origin + static_cast<char32_t>(message); }

/// A role that templates know is as good as theirs: some write '<|' + role + '|>'.
char32_t origin_of_role(const OrderedJson& role) {
  static constexpr std::array<std::string_view, 7> known = {"system", "developer", "user",   "assistant",
                                                            "tool",   "function",  "ipython"};
  return role.is_string() && std::ranges::find(known, role.get_ref<const std::string&>()) != known.end()
             ? 0
             : origin_of_others;
}

jinja::Value message_value(const OrderedJson& message, std::size_t i) {
  jinja::Map map;
  for (const auto& [key, value] : message.items())
    map.set(Text(key, origin_of_others), jinja::value_of(value, key == "role" ? origin_of_role(value) : origin_of(i)));
  return jinja::Value::map(std::move(map));
}

/// Of the messages that loss falls on.
std::vector<bool> chosen_of(const Conversation& conversation, TrainOn on) {
  std::vector<bool> chosen = conversation.is_trained;
  if (on != TrainOn::last) return chosen;
  const auto last = std::find(chosen.rbegin(), chosen.rend(), true);
  if (last != chosen.rend()) std::fill(last + 1, chosen.rend(), false);
  return chosen;
}

/// Bytes of its strings, and a few for each value.
std::int64_t size_of_strings(const OrderedJson& json) {
  constexpr std::int64_t of_a_value = 8;
  std::int64_t size = of_a_value;
  if (json.is_string()) size += std::ssize(json.get_ref<const std::string&>());
  if (json.is_structured())
    for (const auto& [key, item] : json.items())
      size += size_of_strings(item) + (json.is_object() ? std::ssize(key) : 0);
  return size;
}

/// In proportion to the conversation: templates go through its messages several times.
jinja::RenderLimits limits_for(const Conversation& conversation) {
  constexpr std::int64_t steps_of_a_byte = 20, bytes_of_a_byte = 24;
  std::int64_t size = 0;
  for (const OrderedJson* json : {&conversation.messages, &conversation.tools, &conversation.variables})
    size += size_of_strings(*json);
  jinja::RenderLimits limits;
  limits.num_steps += steps_of_a_byte * size;
  limits.num_bytes += bytes_of_a_byte * size;
  return limits;
}

bool is_text(const OrderedJson& message) { return message.contains("content") && message.at("content").is_string(); }

}  // namespace

std::size_t end_of_message(const Text& text, std::size_t message, std::size_t place) {
  const std::size_t last = text.origins.rfind(origin_of(message));
  return last == std::string::npos ? place : last + 1;
}

ChatRenderer::ChatRenderer(const Tokenizer& tokenizer, const ChatTemplates& sources, jinja::Map variables)
    : tokenizer_(tokenizer),
      template_(sources.main),
      tool_use_(sources.tool_use.empty() ? template_ : jinja::ChatTemplate(sources.tool_use)),
      variables_(std::move(variables)) {}

jinja::Rendered ChatRenderer::render(const Conversation& conversation, bool adds_prompt) const {
  jinja::Map variables = variables_;
  std::vector<jinja::Value> messages;
  for (std::size_t i = 0; i < conversation.messages.size(); ++i)
    messages.push_back(message_value(conversation.messages[i], i));
  variables.set(Text("messages"), jinja::Value::list(std::move(messages)));
  variables.set(Text("add_generation_prompt"), adds_prompt);
  // transformers gives templates both, always.
  variables.set(Text("tools"), jinja::value_of(conversation.tools, origin_of_others));
  variables.set(Text("documents"), jinja::None{});
  for (const auto& [name, value] : conversation.variables.items())
    variables.set(Text(name, origin_of_others), jinja::value_of(value, origin_of_others));
  return (conversation.tools.is_null() ? template_ : tool_use_).render(variables, limits_for(conversation));
}

MarkedText ChatRenderer::marked(const Conversation& conversation, TrainOn on) const {
  const jinja::Rendered rendered = render(conversation);
  MarkedText marked{rendered.text, std::vector<std::uint8_t>(rendered.text.bytes.size(), on == TrainOn::all ? 1 : 0)};
  for (std::size_t at = 0; at < marked.is_trained.size(); ++at)
    if (const std::size_t message = rendered.text.origins[at] - first_origin;
        rendered.text.origins[at] >= first_origin && conversation.is_left_out[message])
      marked.is_trained[at] = 0;
  const std::vector<bool> chosen = chosen_of(conversation, on);
  const Extents of_messages = extents(rendered, conversation, chosen);
  if (on != TrainOn::all && !rendered.generations.empty()) {
    mark_generations(rendered, chosen, of_messages, marked);
    return marked;
  }
  KnownPrompts known;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (!chosen[i] || !of_messages[i].exists()) continue;
    if (on != TrainOn::all)
      mark_answer(conversation, i, of_messages, known, marked);
    else if (i + 1 == chosen.size() && !ending_at(marked.text, of_messages[i].end).is_found)
      (void)add_ending(conversation, of_messages[i].end, marked);
  }
  return marked;
}

ChatRenderer::Extents ChatRenderer::extents(const jinja::Rendered& rendered, const Conversation& of,
                                            const std::vector<bool>& chosen) const {
  Extents found(chosen.size());
  for (std::size_t at = 0; at < rendered.text.bytes.size(); ++at) {
    if (rendered.text.origins[at] < first_origin) continue;
    Extent& extent = found[rendered.text.origins[at] - first_origin];
    if (!extent.exists()) extent.first = at;
    extent.end = at + 1;
  }
  Conversation filled = of;
  bool has_empty = false;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (found[i].exists() || !chosen[i] || !is_text(of.messages[i])) continue;
    filled.messages[i]["content"] = filler;
    has_empty = true;
  }
  if (!has_empty) return found;
  const Text text = render(filled).text;
  Text without;
  for (std::size_t at = 0; at < text.bytes.size(); ++at) {
    const std::size_t message = text.origins[at] - first_origin;
    const bool is_filler = text.origins[at] >= first_origin && filled.messages[message] != of.messages[message];
    if (is_filler && !found[message].exists()) found[message] = {without.bytes.size(), without.bytes.size()};
    if (is_filler) continue;
    without.bytes += text.bytes[at];
    without.origins += text.origins[at];
  }
  require(without.bytes == rendered.text.bytes,
          "a message of the assistant is empty, and the template writes something else around an answer of a letter");
  return found;
}

void ChatRenderer::mark_generations(const jinja::Rendered& rendered, const std::vector<bool>& chosen,
                                    const Extents& extents, MarkedText& marked) const {
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (!chosen[i] || !extents[i].exists()) continue;
    const auto& [first, end] = extents[i];
    bool is_inside = false;
    for (const auto& [start, stop] : rendered.generations) {
      const auto holds = [&](std::size_t at) { return start <= at && at < stop; };
      if (stop <= first || start >= std::max(end, first + 1)) continue;
      const std::u32string_view origins(rendered.text.origins.data() + start, stop - start);
      if (!holds(first) && !holds(end - 1) && origins.find(origin_of(i)) == std::u32string_view::npos) continue;
      is_inside = true;
      std::fill(marked.is_trained.begin() + std::ptrdiff_t(start), marked.is_trained.begin() + std::ptrdiff_t(stop), 1);
    }
    require(is_inside, "message {} is outside {{% generation %}}", i + 1);
  }
}

void ChatRenderer::mark_answer(const Conversation& of, std::size_t i, const Extents& extents, KnownPrompts& known,
                               MarkedText& marked) const {
  const auto& [first, start] = extents[i];
  const std::size_t place = std::min(first, end_of_prompt(of, i, marked.text, extents, known));
  const Ending ending = ending_at(marked.text, start);
  const bool is_last = i + 1 == of.messages.size();
  std::size_t end = start + ending.size;
  if (!ending.is_found && is_last && add_ending(of, start, marked)) {
    end = marked.text.bytes.size();
  } else {
    require(ending.is_found,
            "no control token ends message {}, so a model would not learn to stop: after it the template writes '{}', "
            "which has no special token of the tokenizer",
            i + 1, marked.text.bytes.substr(start, ending.size));
  }
  std::fill(marked.is_trained.begin() + std::ptrdiff_t(place), marked.is_trained.begin() + std::ptrdiff_t(end), 1);
}

/// The first control token in what the template writes from here, or else the first added token that is none.
ChatRenderer::Ending ChatRenderer::ending_at(const Text& text, std::size_t at) const {
  const auto next = std::find_if(text.origins.begin() + std::ptrdiff_t(at), text.origins.end(),
                                 [](char32_t origin) { return origin >= first_origin; });
  const auto end = static_cast<std::size_t>(next - text.origins.begin());
  const std::string_view written = std::string_view(text.bytes).substr(at, end - at);
  const TemplateOnly control(text);
  std::size_t first[2] = {nowhere, nowhere}, size[2] = {0, 0};
  for (const AddedToken& token : tokenizer_.spec().added) {
    if (token.content.empty()) continue;
    const int kind = token.is_special ? 0 : 1;
    std::size_t found = written.find(token.content);
    while (found != nowhere && !control.allows(at + found, at + found + token.content.size()))
      found = written.find(token.content, found + 1);
    if (found > first[kind] || (found == first[kind] && token.content.size() <= size[kind])) continue;
    first[kind] = found;
    size[kind] = token.content.size();
  }
  const int kind = first[0] != nowhere ? 0 : 1;
  if (first[kind] == nowhere) return {written.size(), false};
  return {first[kind] + size[kind], true};
}

}  // namespace echelon
