#include "data/chat/answer_spans.h"

#include "base/error.h"

#include <algorithm>
#include <array>

namespace echelon {
namespace {

using jinja::Text;
using OrderedJson = nlohmann::ordered_json;
constexpr std::size_t nowhere = std::string::npos;
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

bool is_text(const OrderedJson& message) { return message.contains("content") && message.at("content").is_string(); }

}  // namespace

std::size_t end_of_message(const Text& text, std::size_t message, std::size_t place) {
  const std::size_t last = text.origins.rfind(origin_of(message));
  return last == nowhere ? place : last + 1;
}

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
  return template_.render(variables);
}

MarkedText ChatRenderer::marked(const Conversation& conversation, TrainOn on) const {
  const jinja::Rendered rendered = render(conversation);
  MarkedText marked{rendered.text, std::vector<std::uint8_t>(rendered.text.bytes.size(), on == TrainOn::all ? 1 : 0)};
  for (std::size_t at = 0; at < marked.is_trained.size(); ++at)
    if (const std::size_t message = rendered.text.origins[at] - first_origin;
        rendered.text.origins[at] >= first_origin && conversation.is_left_out[message])
      marked.is_trained[at] = 0;
  const std::vector<bool> chosen = chosen_of(conversation, on);
  const std::vector<std::size_t> first = places(rendered, conversation, chosen);
  if (on != TrainOn::all && !rendered.generations.empty()) {
    mark_generations(rendered, chosen, first, marked);
    return marked;
  }
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (!chosen[i] || first[i] == nowhere) continue;
    const std::size_t end = end_of_message(marked.text, i, first[i]);
    if (on != TrainOn::all)
      mark_answer(conversation, i, first[i], marked);
    else if (i + 1 == chosen.size() && !ending_at(marked.text, end).is_found)
      (void)add_ending(conversation, end, marked);
  }
  return marked;
}

/// Where each chosen message starts. An empty one is where a letter in it would be.
std::vector<std::size_t> ChatRenderer::places(const jinja::Rendered& rendered, const Conversation& of,
                                              const std::vector<bool>& chosen) const {
  std::vector<std::size_t> found(chosen.size(), nowhere);
  Conversation filled = of;
  bool has_empty = false;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    found[i] = rendered.text.origins.find(origin_of(i));
    if (found[i] != nowhere || !chosen[i] || !is_text(of.messages[i])) continue;
    filled.messages[i]["content"] = filler;
    has_empty = true;
  }
  if (!has_empty) return found;
  const Text text = render(filled).text;
  Text without;
  for (std::size_t at = 0; at < text.bytes.size(); ++at) {
    const std::size_t message = text.origins[at] - first_origin;
    const bool is_filler = text.origins[at] >= first_origin && filled.messages[message] != of.messages[message];
    if (is_filler && found[message] == nowhere) found[message] = without.bytes.size();
    if (is_filler) continue;
    without.bytes += text.bytes[at];
    without.origins += text.origins[at];
  }
  require(without.bytes == rendered.text.bytes,
          "a message of the assistant is empty, and the template writes something else around an answer of a letter");
  return found;
}

void ChatRenderer::mark_generations(const jinja::Rendered& rendered, const std::vector<bool>& chosen,
                                    const std::vector<std::size_t>& places, MarkedText& marked) const {
  const auto& spans = rendered.generations;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (!chosen[i] || places[i] == nowhere) continue;
    const std::size_t last = std::max(end_of_message(rendered.text, i, places[i]), places[i] + 1) - 1;
    bool is_inside = false;
    for (const auto& [start, end] : spans) {
      const std::u32string_view origins(rendered.text.origins.data() + start, end - start);
      const bool holds = (start <= places[i] && places[i] < end) || (start <= last && last < end) ||
                         origins.find(origin_of(i)) != std::u32string_view::npos;
      if (!holds) continue;
      is_inside = true;
      std::fill(marked.is_trained.begin() + std::ptrdiff_t(start), marked.is_trained.begin() + std::ptrdiff_t(end), 1);
    }
    require(is_inside, "message {} is outside {{% generation %}}", i + 1);
  }
}

void ChatRenderer::mark_answer(const Conversation& of, std::size_t i, std::size_t place, MarkedText& marked) const {
  const std::size_t start = end_of_message(marked.text, i, place);
  place = std::min(place, end_of_prompt(of, i, marked.text));
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
  const std::size_t next = std::min(text.origins.find_first_not_of(U'\0', at), text.bytes.size());
  const std::string_view written(text.bytes.data() + at, next - at);
  std::size_t first[2] = {nowhere, nowhere}, size[2] = {0, 0};
  for (const AddedToken& token : tokenizer_.spec().added) {
    if (token.content.empty()) continue;
    const int kind = token.is_special ? 0 : 1;
    const std::size_t found = written.find(token.content);
    if (found > first[kind] || (found == first[kind] && token.content.size() <= size[kind])) continue;
    first[kind] = found;
    size[kind] = token.content.size();
  }
  const int kind = first[0] != nowhere ? 0 : 1;
  if (first[kind] == nowhere) return {written.size(), false};
  return {first[kind] + size[kind], true};
}

}  // namespace echelon
