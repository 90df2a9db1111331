// What a template writes around an answer, found by rendering other conversations.
#include "base/error.h"
#include "data/chat/answer_spans.h"

#include <algorithm>

namespace echelon {

using jinja::Text;

std::size_t ChatRenderer::end_of_prompt(const Conversation& of, std::size_t i, const Text& text, const Extents& extents,
                                        KnownPrompts& known) const {
  const std::size_t place = extents[i].first;
  if (i == 0 || !extents[i - 1].exists() || extents[i - 1].end > place) return rendered_prompt(of, i, text, known);
  const std::size_t before = extents[i - 1].end;
  const std::string around =
      of.messages[i - 1].at("role").get<std::string>() + '\n' + text.bytes.substr(before, place - before);
  const auto [found, is_new] = known.sizes.try_emplace(around, nowhere);
  if (is_new)
    if (const std::size_t end = rendered_prompt(of, i, text, known); end >= before && end <= place)
      found->second = end - before;
  return found->second == nowhere ? text.bytes.size() : before + found->second;
}

/// What follows is the model's to write, such as "<think>" of the template.
std::size_t ChatRenderer::rendered_prompt(const Conversation& of, std::size_t i, const Text& text,
                                          KnownPrompts& known) const {
  constexpr int most_rendered = 64;  // each takes as long as the conversation
  if (++known.num_rendered > most_rendered) return text.bytes.size();
  Conversation before = of;
  before.messages.erase(before.messages.begin() + static_cast<std::ptrdiff_t>(i), before.messages.end());
  try {
    const Text prompt = render(before, true).text;
    if (prompt.bytes == render(before).text.bytes) return text.bytes.size();  // it makes no prompts
    if (text.bytes.starts_with(prompt.bytes) && text.origins.starts_with(prompt.origins)) return prompt.bytes.size();
  } catch (const Error&) {  // the template refuses a conversation that ends here
  }
  return text.bytes.size();
}

/// Some templates end a turn with the token of the next message's role, so that nothing ends the last one.
bool ChatRenderer::add_ending(const Conversation& of, std::size_t end, MarkedText& marked) const {
  const std::string tail = marked.text.bytes.substr(end);
  std::string added;
  Conversation longer = of;
  longer.messages.push_back({{"role", "user"}, {"content", "x"}});
  try {
    const Text text = render(longer).text;
    const std::size_t after = end_of_message(text, of.messages.size() - 1, end);
    const Ending ending = ending_at(text, after);
    const std::string written = text.bytes.substr(after, ending.size);
    if (ending.is_found && written.starts_with(tail)) added = written.substr(tail.size());
  } catch (const Error&) {  // the template refuses another message
  }
  const jinja::Value* eos = variables_.find("eos_token");
  if (added.empty() && eos != nullptr && tokenizer_.added_token(eos->text()->bytes)) added = eos->text()->bytes;
  marked.text.append(Text(added));
  marked.is_trained.resize(marked.text.bytes.size(), 1);
  return !added.empty();
}

}  // namespace echelon
