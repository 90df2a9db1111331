#include "data/tokenizer/splitting/scanner.h"

#include "base/error.h"

#include <algorithm>
#include <map>
#include <utility>

namespace echelon {
namespace {

constexpr std::size_t steps_of_a_search = 50'000'000;
constexpr std::uint32_t any_class = ~std::uint32_t{0};

/// The classes with which a match of the terms may start; any_class if it may be empty.
std::uint32_t starts_of(const std::vector<Term>& terms) {
  std::uint32_t starts = 0;
  for (const Term& term : terms) {
    if (term.kind == Term::Kind::not_before || term.kind == Term::Kind::at_end) return any_class;
    if (term.kind == Term::Kind::repeat) starts |= term.members;
    for (const std::vector<Term>& alternative : term.alternatives) starts |= starts_of(alternative);
    if (term.min > 0) return starts;
  }
  return any_class;
}

}  // namespace

Scanner::Scanner(Expression expression) : expression_(std::move(expression)) {
  for (const std::vector<Term>& alternative : expression_.alternatives) starts_.push_back(starts_of(alternative));
  // Most pages are of the same classes throughout.
  std::map<std::uint32_t, std::uint16_t> uniform;
  std::vector<std::size_t> next_range(expression_.classes.size());
  for (char32_t first = 0; first < num_code_points; first += 256) {
    const auto [page, is_uniform] = make_page(first, next_range);
    const auto known = is_uniform ? uniform.find(page[0]) : uniform.end();
    pages_.push_back(known != uniform.end() ? known->second : static_cast<std::uint16_t>(of_page_.size()));
    if (known != uniform.end()) continue;
    if (is_uniform) uniform.emplace(page[0], pages_.back());
    of_page_.push_back(page);
  }
  std::copy_n(of_page_[pages_[0]].begin(), ascii_.size(), ascii_.begin());
}

/// The classes of 256 code points, and whether they are equal. next_range: by class, where its ranges continue.
std::pair<Scanner::Page, bool> Scanner::make_page(char32_t first, std::vector<std::size_t>& next_range) const {
  Page page{};
  bool is_uniform = true;
  for (std::size_t i = 0; i < expression_.classes.size(); ++i) {
    const auto& ranges = expression_.classes[i].ranges();
    while (next_range[i] < ranges.size() && ranges[next_range[i]].end <= first) ++next_range[i];
    for (std::size_t r = next_range[i]; r < ranges.size() && ranges[r].first < first + 256; ++r) {
      const char32_t begin = std::max(ranges[r].first, first), end = std::min<char32_t>(ranges[r].end, first + 256);
      is_uniform = is_uniform && end - begin == 256;
      for (char32_t code = begin; code < end; ++code) page[code - first] |= std::uint32_t{1} << i;
    }
  }
  return {page, is_uniform};
}

std::uint32_t Scanner::classes_at(std::string_view text, std::size_t& at) const {
  const auto byte = static_cast<std::uint8_t>(text[at]);
  if (byte < 0x80) {
    ++at;
    return ascii_[byte];
  }
  const char32_t code = next_code_point(text, at);
  return of_page_[pages_[code >> 8]][code & 0xff];
}

std::size_t Scanner::match(std::string_view text, std::size_t at) const {
  Search search{text, steps_of_a_search};
  std::size_t after = at;
  const std::uint32_t first = classes_at(text, after);
  for (std::size_t i = 0; i < starts_.size(); ++i) {
    if (starts_[i] != any_class && (starts_[i] & first) == 0) continue;
    const std::vector<Term>& terms = expression_.alternatives[i];
    const std::size_t end = match_rest(search, {terms.data(), terms.data() + terms.size(), nullptr}, at);
    if (end != no_match) return end;
  }
  return at;
}

std::size_t Scanner::match_rest(Search& search, Next rest, std::size_t at) const {
  while (rest.term == rest.end) {
    if (rest.next == nullptr) return at;
    rest = *rest.next;
  }
  if (search.steps_left-- == 0) throw Error("the tokenizer's pattern gives up on a text: too many steps");
  switch (rest.term->kind) {
    case Term::Kind::repeat: return match_repeat(search, rest, at);
    case Term::Kind::group: return match_group(search, rest, at);
    case Term::Kind::not_before: {
      std::size_t after = at;
      if (at < search.text.size() && (classes_at(search.text, after) & rest.term->members) != 0) return no_match;
      break;
    }
    case Term::Kind::at_end:
      if (at < search.text.size() && search.text[at] != '\n') return no_match;
      break;
  }
  return match_rest(search, {rest.term + 1, rest.end, rest.next}, at);
}

std::size_t Scanner::match_repeat(Search& search, Next rest, std::size_t at) const {
  const Term& term = *rest.term;
  std::uint32_t count = 0;
  std::size_t end = at;
  for (std::size_t after = at; count < term.max && after < search.text.size(); ++count) {
    if ((classes_at(search.text, after) & term.members) == 0) break;
    end = after;
  }
  if (count < term.min) return no_match;
  const Next following{rest.term + 1, rest.end, rest.next};
  if (following.term == following.end && following.next == nullptr) return end;
  for (;; --count) {
    const std::size_t found = match_rest(search, following, end);
    if (found != no_match || term.is_possessive || count == term.min) return found;
    end = previous_code_point(search.text, end);
  }
}

std::size_t Scanner::match_group(Search& search, Next rest, std::size_t at) const {
  const Next following{rest.term + 1, rest.end, rest.next};
  for (const std::vector<Term>& alternative : rest.term->alternatives) {
    const std::size_t found =
        match_rest(search, {alternative.data(), alternative.data() + alternative.size(), &following}, at);
    if (found != no_match) return found;
  }
  return rest.term->min == 0 ? match_rest(search, following, at) : no_match;
}

}  // namespace echelon
