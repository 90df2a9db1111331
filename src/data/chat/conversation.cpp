#include "data/chat/conversation.h"

#include "base/error.h"
#include "base/shown_json.h"
#include "data/template/chat_template.h"

#include <array>

namespace echelon {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string text_in(const OrderedJson& object, const char* key) {
  require(object.contains(key) && object.at(key).is_string(), "\"{}\" is not a string", key);
  return object.at(key).get<std::string>();
}

OrderedJson message(std::string_view role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

/// What ShareGPT's and Alpaca's lines have outside of their turns.
OrderedJson system_messages(const OrderedJson& json) {
  OrderedJson messages = OrderedJson::array();
  if (!json.contains("system") || json.at("system").is_null()) return messages;
  if (const std::string system = text_in(json, "system"); !system.empty())
    messages.push_back(message("system", system));
  return messages;
}

OrderedJson sharegpt_messages(const OrderedJson& json) {
  const OrderedJson& turns = json.at("conversations");
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 4> roles = {
      {{"human", "user"}, {"gpt", "assistant"}, {"system", "system"}, {"tool", "tool"}}};
  require(turns.is_array(), "\"conversations\" is not an array");
  OrderedJson messages = system_messages(json);
  for (const OrderedJson& turn : turns) {
    require(turn.is_object(), "a turn of \"conversations\" is not an object");
    std::string role = text_in(turn, "from");
    for (const auto& [theirs, ours] : roles)
      if (role == theirs) role = ours;
    messages.push_back(message(role, text_in(turn, "value")));
    if (turn.contains("weight")) messages.back()["weight"] = turn.at("weight");
  }
  return messages;
}

OrderedJson alpaca_messages(const OrderedJson& json) {
  std::string prompt = text_in(json, "instruction");
  const std::string input = json.contains("input") && !json.at("input").is_null() ? text_in(json, "input") : "";
  if (!input.empty()) prompt += "\n" + input;
  OrderedJson messages = system_messages(json);
  if (json.contains("history") && !json.at("history").is_null()) {
    require(json.at("history").is_array(), "\"history\" is not an array");
    for (const OrderedJson& turn : json.at("history")) {
      require(turn.is_array() && turn.size() == 2 && turn[0].is_string() && turn[1].is_string(),
              "\"history\" has {}, not a pair of texts: instruction and output", shown_json(turn));
      messages.push_back(message("user", turn[0].get<std::string>()));
      messages.push_back(message("assistant", turn[1].get<std::string>()));
    }
  }
  messages.push_back(message("user", prompt));
  messages.push_back(message("assistant", text_in(json, "output")));
  return messages;
}

/// Lists of tools are published as JSON in a string too, since columns of tables have one type.
OrderedJson tools_of(const OrderedJson& json) {
  require(!json.contains("functions"),
          "\"functions\" is an older form: write each under \"tools\" as "
          "{{\"type\": \"function\", \"function\": ...}}");
  if (!json.contains("tools")) return nullptr;
  if (!json.at("tools").is_string()) return json.at("tools");
  const auto& text = json.at("tools").get_ref<const std::string&>();
  if (text.empty()) return nullptr;
  try {
    return jinja::parse_bounded(text);
  } catch (const Error& error) {
    throw Error(fmt::format("\"tools\" is a string that is not JSON: {}", error.what()));
  }
}

OrderedJson variables_of(const OrderedJson& json) {
  const OrderedJson none = OrderedJson::object();
  if (!json.contains("chat_template_kwargs") || json.at("chat_template_kwargs").is_null()) return none;
  const OrderedJson& variables = json.at("chat_template_kwargs");
  require(variables.is_object(), "\"chat_template_kwargs\" is {}, not an object", shown_json(variables));
  for (const char* name : {"messages", "tools", "add_generation_prompt", "chat_template"})
    require(!variables.contains(name), "\"chat_template_kwargs\" has \"{}\", which is no variable of a line", name);
  return variables;
}

OrderedJson prompt_messages(const OrderedJson& json) {
  if (!json.at("prompt").is_array())
    return {message("user", text_in(json, "prompt")), message("assistant", text_in(json, "completion"))};
  OrderedJson messages = json.at("prompt");
  require(json.contains("completion") && json.at("completion").is_array(), "\"completion\" is not an array");
  for (const OrderedJson& item : json.at("completion")) messages.push_back(item);
  return messages;
}

/// transformers gives templates no key whose value is null, and reasoning under each of its names.
void normalize(OrderedJson& one) {
  if (!one.is_object()) return;
  using Object = OrderedJson::object_t;
  Object kept;
  for (auto& [key, value] : one.get_ref<Object&>())
    if (!value.is_null()) kept.Object::Container::emplace_back(key, std::move(value));  // keys are unique already
  one = std::move(kept);
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    if (!one.contains(name)) continue;
    const OrderedJson reasoning = one.at(name);
    OrderedJson aliased = {{"thinking", reasoning}};
    for (auto& [key, value] : one.get_ref<Object&>()) aliased[key] = std::move(value);
    aliased["reasoning_content"] = reasoning;
    one = std::move(aliased);
    return;
  }
}

/// Takes the weight of the message away, which templates do not know.
bool take_weight(OrderedJson& one, std::size_t number) {
  require(one.is_object() && one.contains("role") && one.at("role").is_string(), "message {} has no \"role\"", number);
  if (!one.contains("weight")) return true;
  const OrderedJson weight = one.at("weight");
  require(weight == 0 || weight == 1, "\"weight\" of message {} is {}, not 0 or 1", number, shown_json(weight));
  one.erase("weight");
  return weight == 1;
}

}  // namespace

std::string_view name_of(ChatFormat format) {
  static constexpr std::array<std::string_view, 4> names = {"messages", "prompt/completion", "conversations",
                                                            "instruction/output"};
  return names.at(static_cast<std::size_t>(format));
}

Conversation read_conversation(std::string_view line) {
  const OrderedJson json = jinja::parse_bounded(line);
  require(json.is_object(), "a conversation is a JSON object");
  Conversation result;
  if (json.contains("messages")) {
    result.messages = json.at("messages");
  } else if (json.contains("prompt")) {
    result.format = ChatFormat::prompt_completion;
    result.messages = prompt_messages(json);
  } else if (json.contains("conversations")) {
    result.format = ChatFormat::sharegpt;
    result.messages = sharegpt_messages(json);
  } else {
    require(json.contains("instruction"),
            "it has none of \"messages\", \"prompt\", \"conversations\" and \"instruction\"");
    result.format = ChatFormat::alpaca;
    result.messages = alpaca_messages(json);
  }
  require(result.messages.is_array() && !result.messages.empty(), "the conversation has no messages");
  for (std::size_t i = 0; i < result.messages.size(); ++i) {
    normalize(result.messages[i]);
    const bool has_weight = take_weight(result.messages[i], i + 1);
    result.is_left_out.push_back(!has_weight);
    result.is_trained.push_back(has_weight && result.messages[i].at("role") == "assistant");
  }
  result.tools = tools_of(json);
  result.variables = variables_of(json);
  return result;
}

}  // namespace echelon
