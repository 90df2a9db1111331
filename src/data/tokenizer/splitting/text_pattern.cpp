#include "data/tokenizer/splitting/text_pattern.h"

#include <algorithm>
#include <utility>

namespace echelon {
namespace {

/// Collects matches and what is between them.
class Spans {
 public:
  Spans(std::string_view text, std::vector<TextSpan>& spans) : text_(text), spans_(spans) {}

  void match(std::size_t begin, std::size_t end) {
    gap(begin);
    spans_.push_back({begin, end, true});
    done_ = end;
  }
  void finish() { gap(text_.size()); }
  [[nodiscard]] std::size_t done() const { return done_; }

 private:
  void gap(std::size_t end) {
    if (done_ < end) spans_.push_back({done_, end, false});
    done_ = end;
  }
  std::string_view text_;
  std::vector<TextSpan>& spans_;
  std::size_t done_ = 0;
};

void find_in(std::string_view text, const std::string& wanted, Spans& spans) {
  for (std::size_t at = text.find(wanted); at != std::string_view::npos; at = text.find(wanted, at + wanted.size()))
    spans.match(at, at + wanted.size());
}

void find_in(std::string_view text, const CodePointSet& characters, Spans& spans) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    if (characters.contains(next_code_point(text, at))) spans.match(begin, at);
  }
}

void find_in(std::string_view text, const Scanner& scanner, Spans& spans) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = scanner.match(text, at);
    if (end > at)
      spans.match(at, end);
    else
      (void)next_code_point(text, at);
    at = std::max(at, end);
  }
}

// An empty match right after another match does not count.
void find_in(std::string_view text, const Regex& regex, Spans& spans) {
  Regex::Matches matches(regex, text);
  bool has_match = false;
  for (std::size_t from = 0; from < text.size();) {
    const std::string_view match = matches.find(from);
    const auto begin = static_cast<std::size_t>(match.data() - text.data());
    if (match.empty() && begin == text.size()) break;
    from = begin + match.size();
    if (!match.empty() || !has_match || spans.done() < begin) {
      spans.match(begin, from);
      has_match = true;
    }
    if (match.empty()) (void)next_code_point(text, from);
  }
}

/// Joins a match to the span before it, in the order of the iterators.
template <class Iterator, class Join>
Iterator merged(Iterator first, Iterator last, const Join& join) {
  Iterator kept = first;
  bool was_match = false;
  for (Iterator span = first; span != last; ++span) {
    const TextSpan current = *span;
    if (kept != first && join.wants(current.is_match, was_match))
      join.extend(*std::prev(kept), current);
    else
      *kept++ = current;
    was_match = current.is_match;
  }
  return kept;
}

struct JoinMatches {
  static bool wants(bool is_match, bool was_match) { return is_match && !was_match; }
  static void extend(TextSpan& span, const TextSpan& more) {
    span.begin = std::min(span.begin, more.begin);
    span.end = std::max(span.end, more.end);
  }
};

struct JoinSame : JoinMatches {
  static bool wants(bool is_match, bool was_match) { return is_match == was_match; }
};

}  // namespace

TextPattern TextPattern::of_text(std::string text) { return TextPattern(Kinds(std::move(text))); }
TextPattern TextPattern::of_class(CodePointSet characters) { return TextPattern(Kinds(std::move(characters))); }
TextPattern TextPattern::of_expression(const std::string& expression, bool as_regex) {
  auto parsed = as_regex ? std::nullopt : parse_expression(expression);
  return parsed ? TextPattern(Kinds(Scanner(std::move(*parsed)))) : TextPattern(Kinds(Regex(expression)));
}

void TextPattern::find(std::string_view text, std::vector<TextSpan>& spans) const {
  Spans found(text, spans);
  std::visit([&](const auto& pattern) { find_in(text, pattern, found); }, pattern_);
  found.finish();
}

void apply(SplitBehavior behavior, std::vector<TextSpan>& spans) {
  switch (behavior) {
    case SplitBehavior::isolated: return;
    case SplitBehavior::removed: std::erase_if(spans, [](const TextSpan& span) { return span.is_match; }); return;
    case SplitBehavior::contiguous: spans.erase(merged(spans.begin(), spans.end(), JoinSame()), spans.end()); return;
    case SplitBehavior::merged_with_previous:
      spans.erase(merged(spans.begin(), spans.end(), JoinMatches()), spans.end());
      return;
    case SplitBehavior::merged_with_next:
      spans.erase(spans.begin(), merged(spans.rbegin(), spans.rend(), JoinMatches()).base());
      return;
  }
}

}  // namespace echelon
