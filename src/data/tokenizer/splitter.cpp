#include "data/tokenizer/splitter.h"

#include "base/text/utf8.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/unicode/character_tables.h"

#include <algorithm>
#include <string>
#include <utility>

namespace echelon {
namespace {

const CodePointSet& named(std::string_view name) { return character_tables().sets.find(name)->second; }

std::optional<TextPattern> pattern_of(const SplitStep& step, bool as_regex) {
  switch (step.kind) {
    case SplitStep::Kind::split:
      return step.is_regex ? TextPattern::of_expression(step.pattern, as_regex) : TextPattern::of_text(step.pattern);
    case SplitStep::Kind::byte_level:
      if (!step.splits) return std::nullopt;
      return TextPattern::of_expression(std::string(gpt2_pattern), as_regex);
    case SplitStep::Kind::digits: return TextPattern::of_class(named("numeric"));
    case SplitStep::Kind::punctuation: return TextPattern::of_class(named("punctuation"));
    case SplitStep::Kind::whitespace_split: return TextPattern::of_class(named("space"));
    case SplitStep::Kind::whitespace:  // \w+|[^\w\s]+, of the library's other regular expressions
    case SplitStep::Kind::metaspace: return std::nullopt;
  }
  return std::nullopt;
}

/// The library's Whitespace: words and runs of other characters.
void find_words(std::string_view text, std::vector<TextSpan>& spans) {
  static const CodePointSet& word = named("word");
  static const CodePointSet& space = named("space");
  int last = -1;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t code = next_code_point(text, at);
    const int kind = space.contains(code) ? 0 : word.contains(code) ? 1 : 2;
    if (kind == last)
      spans.back().end = at;
    else
      spans.push_back({begin, at, kind == 0});
    last = kind;
  }
}

SplitBehavior behavior_of(const SplitStep& step) {
  if (step.kind == SplitStep::Kind::digits)
    return step.is_individual ? SplitBehavior::isolated : SplitBehavior::contiguous;
  const bool removes = step.kind == SplitStep::Kind::whitespace || step.kind == SplitStep::Kind::whitespace_split;
  return removes ? SplitBehavior::removed : step.behavior;
}

}  // namespace

std::vector<SplitStep> byte_level_splitter(const std::vector<std::string>& patterns) {
  std::vector<SplitStep> steps;
  const bool is_gpt2 = patterns.size() == 1 && patterns[0] == gpt2_pattern;
  for (const std::string& pattern : patterns) {
    if (!is_gpt2) steps.push_back({.pattern = pattern});
  }
  steps.push_back({.kind = SplitStep::Kind::byte_level, .splits = is_gpt2});
  return steps;
}

Splitter::Splitter(const std::vector<SplitStep>& steps, bool as_regex) {
  for (const SplitStep& step : steps) {
    const bool does_nothing = step.kind == SplitStep::Kind::byte_level && !step.splits && !step.adds_space;
    if (!does_nothing) steps_.push_back({step, pattern_of(step, as_regex)});
  }
}

void Splitter::split(std::string_view text, bool starts_text, PieceSink& sink) const {
  for (bool is_first = starts_text; !text.empty(); is_first = false) {
    const std::size_t valid = valid_utf8_prefix(text);
    if (valid > 0) run(0, {text.substr(0, valid), is_first}, sink);
    std::size_t end = valid;
    while (end < text.size() && utf8_character_length(text.substr(end)) == 0) ++end;
    if (end > valid) sink.take(text.substr(valid, end - valid));
    text.remove_prefix(end);
  }
}

void Splitter::run(std::size_t level, Part part, PieceSink& sink) const {
  if (part.text.empty()) return;
  if (level == steps_.size()) return sink.take(part.text);
  switch (steps_[level].values.kind) {
    case SplitStep::Kind::byte_level: return run_byte_level(level, part, sink);
    case SplitStep::Kind::metaspace: return run_metaspace(level, part, sink);
    default: return run_pattern(level, part, sink);
  }
}

void Splitter::run_pattern(std::size_t level, Part part, PieceSink& sink) const {
  const Step& step = steps_[level];
  const bool isolates = behavior_of(step.values) == SplitBehavior::isolated;
  if (isolates && step.pattern->scanner() != nullptr) return run_scanner(level, part, sink);
  std::vector<TextSpan> spans;
  step.pattern ? step.pattern->find(part.text, spans) : find_words(part.text, spans);
  if (step.values.is_inverted)
    for (TextSpan& span : spans) span.is_match = !span.is_match;
  apply(behavior_of(step.values), spans);
  for (const TextSpan& span : spans)
    run(level + 1, {part.text.substr(span.begin, span.end - span.begin), part.starts_text && span.begin == 0}, sink);
}

// Matches and what is between them, without a list of them.
void Splitter::run_scanner(std::size_t level, Part part, PieceSink& sink) const {
  const Scanner& scanner = *steps_[level].pattern->scanner();
  const auto give = [&](std::size_t begin, std::size_t end) {
    const std::string_view piece = part.text.substr(begin, end - begin);
    if (level + 1 == steps_.size())
      sink.take(piece);
    else
      run(level + 1, {piece, part.starts_text && begin == 0}, sink);
  };
  std::size_t done = 0;
  for (std::size_t at = 0; at < part.text.size();) {
    const std::size_t end = scanner.match(part.text, at);
    if (end == at) {
      (void)next_code_point(part.text, at);
      continue;
    }
    if (done < at) give(done, at);
    give(at, end);
    done = at = end;
  }
  if (done < part.text.size()) give(done, part.text.size());
}

void Splitter::run_byte_level(std::size_t level, Part part, PieceSink& sink) const {
  const SplitStep& step = steps_[level].values;
  std::string with_space;
  if (step.adds_space && part.text[0] != ' ') {
    with_space = " " + std::string(part.text);
    part.text = with_space;
  }
  step.splits ? run_pattern(level, part, sink) : run(level + 1, part, sink);
}

// Every mark starts a piece, and of several marks each but the last is one alone.
void Splitter::run_metaspace(std::size_t level, Part part, PieceSink& sink) const {
  const SplitStep& step = steps_[level].values;
  const std::string& mark = step.pattern;
  std::string marked = with_replacements(part.text, " ", mark);
  const bool adds = step.prepend == PrependScheme::always || (step.prepend == PrependScheme::first && part.starts_text);
  if (adds && !marked.starts_with(mark)) marked.insert(0, mark);
  const std::string_view text = marked;
  if (!step.splits) return run(level + 1, {text, part.starts_text}, sink);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t from = text.substr(begin).starts_with(mark) ? begin + mark.size() : begin;
    const std::size_t end = std::min(text.find(mark, from), text.size());
    run(level + 1, {text.substr(begin, end - begin), part.starts_text && begin == 0}, sink);
    begin = end;
  }
}

}  // namespace echelon
