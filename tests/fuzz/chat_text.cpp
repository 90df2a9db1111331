#include "base/error.h"
#include "data/chat/conversation.h"
#include "data/template/chat_template.h"
#include "fuzz/heap_bound.h"
#include "fuzz/input_folder.h"
#include "fuzz/targets.h"

#include <stdexcept>

namespace echelon::fuzz {
namespace {

using jinja::ChatTemplate, jinja::Map, jinja::Rendered, jinja::Text;

/// A byte takes five, with its origin, and temporary strings more.
constexpr jinja::RenderLimits limits = {.num_steps = 20'000, .num_bytes = 1 << 20};

void render(std::string_view source, std::string_view json) {
  Map variables;
  try {
    if (!json.empty()) variables.set(Text("messages"), jinja::value_of(jinja::parse_bounded(json)));
    variables.set(Text("bos_token"), Text("<s>"));
    const Rendered result = ChatTemplate(source).render(variables, limits);
    if (result.text.bytes.size() != result.text.origins.size())
      throw std::logic_error("a byte of what a template renders has no origin");
    for (const auto& [start, end] : result.generations)
      if (start > end || end > result.text.bytes.size()) throw std::logic_error("a generation is outside the text");
  } catch (const Error&) {
    return;
  }
}

}  // namespace

int chat_template(const std::uint8_t* data, std::size_t size) {
  std::string_view text = text_of(data, size);
  const HeapBound bound(size);
  const std::string_view source = take_part(text);
  render(source, text);
  return 0;
}

int chat_line(const std::uint8_t* data, std::size_t size) {
  const HeapBound bound(size);
  try {
    const Conversation read = read_conversation(text_of(data, size));
    if (read.messages.empty() || read.messages.size() != read.is_trained.size())
      throw std::logic_error("a conversation has messages without a weight");
    for (const auto& message : read.messages) (void)jinja::value_of(message);
  } catch (const Error&) {
    return 0;
  }
  return 0;
}

}  // namespace echelon::fuzz
