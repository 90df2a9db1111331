#include "data/tokenizer/normalizer.h"

#include "base/text/utf8.h"
#include "data/tokenizer/unicode/character_tables.h"

#include <algorithm>
#include <utility>

namespace echelon {
namespace {

bool is_space(char32_t code) { return character_tables().sets.find("space")->second.contains(code); }

std::string_view stripped(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    std::size_t after = 0;
    if (utf8_character_length(text) == 0 || !is_space(next_code_point(text, after))) break;
    text.remove_prefix(after);
  }
  while (right && !text.empty()) {
    const std::size_t last = previous_code_point(text, text.size());
    std::size_t at = last;
    if (utf8_character_length(text.substr(last)) != text.size() - last || !is_space(next_code_point(text, at))) break;
    text = text.substr(0, last);
  }
  return text;
}

}  // namespace

std::string with_replacements(std::string_view text, std::string_view wanted, std::string_view content) {
  std::string out;
  for (;;) {
    const std::size_t at = text.find(wanted);
    out += text.substr(0, at);
    if (at == std::string_view::npos) return out;
    out += content;
    text.remove_prefix(at + wanted.size());
  }
}

std::string with_replacements(std::string_view text, const TextPattern& pattern, std::string_view content) {
  std::string out;
  std::vector<TextSpan> spans;
  while (!text.empty()) {
    const std::string_view valid = text.substr(0, valid_utf8_prefix(text));
    spans.clear();
    pattern.find(valid, spans);
    for (const TextSpan& span : spans) out += span.is_match ? content : valid.substr(span.begin, span.end - span.begin);
    text.remove_prefix(valid.size());
    while (!text.empty() && utf8_character_length(text) == 0) {
      out += text[0];
      text.remove_prefix(1);
    }
  }
  return out;
}

Normalizer::Normalizer(std::vector<NormalizerStep> steps) {
  for (NormalizerStep& step : steps) {
    auto pattern = step.is_regex ? std::optional(TextPattern::of_expression(step.pattern)) : std::nullopt;
    std::optional<CharacterMap> map;
    if (step.kind == NormalizerStep::Kind::character_map) map.emplace(step.content, "the character map");
    steps_.push_back({std::move(step), std::move(pattern), std::move(map)});
  }
}

std::string_view Normalizer::apply(std::string_view text, std::string& storage) const {
  std::string next;
  for (const Step& step : steps_) {
    const NormalizerStep& values = step.values;
    switch (values.kind) {
      case NormalizerStep::Kind::form: {
        const std::string_view formed = to_normal_form(text, values.form, next);
        if (formed.data() == text.data()) continue;
        break;
      }
      case NormalizerStep::Kind::lowercase: next = to_lower_case(text); break;
      case NormalizerStep::Kind::strip: next = stripped(text, values.strips_left, values.strips_right); break;
      case NormalizerStep::Kind::prepend: next = (text.empty() ? "" : values.content) + std::string(text); break;
      case NormalizerStep::Kind::replace:
        next = step.pattern ? with_replacements(text, *step.pattern, values.content)
                            : with_replacements(text, values.pattern, values.content);
        break;
      case NormalizerStep::Kind::character_map: next = step.map->apply(text); break;
    }
    std::swap(storage, next);
    text = storage;
  }
  return text;
}

}  // namespace echelon
