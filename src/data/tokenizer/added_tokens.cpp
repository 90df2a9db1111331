#include "data/tokenizer/added_tokens.h"

#include "base/text/utf8.h"
#include "data/tokenizer/unicode/character_tables.h"

#include <algorithm>

namespace echelon {
namespace {

bool is_in(std::string_view set, char32_t code) { return character_tables().sets.find(set)->second.contains(code); }

/// Whether the character before `at`, or the one at it, is of the set. Bytes that are not UTF-8 are of none.
bool is_before(std::string_view set, std::string_view text, std::size_t at) {
  if (at == 0) return false;
  std::size_t begin = previous_code_point(text, at);
  return utf8_character_length(text.substr(begin)) == at - begin && is_in(set, next_code_point(text, begin));
}
bool is_at(std::string_view set, std::string_view text, std::size_t at) {
  return utf8_character_length(text.substr(at)) > 0 && is_in(set, next_code_point(text, at));
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<const AddedToken*> tokens, std::vector<std::string> contents)
    : tokens_(std::move(tokens)) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (contents[i].empty()) continue;
    is_first_byte_[static_cast<std::uint8_t>(contents[i][0])] = true;
    std::uint32_t node = 0;
    for (const char c : contents[i]) {
      const auto byte = static_cast<std::uint8_t>(c);
      auto& children = nodes_[node].children;
      const auto found = std::find_if(children.begin(), children.end(), [&](const auto& e) { return e.first == byte; });
      if (found != children.end()) {
        node = found->second;
        continue;
      }
      const auto next = static_cast<std::uint32_t>(nodes_.size());
      children.emplace_back(byte, next);
      nodes_.emplace_back();  // invalidates `children`
      node = next;
    }
    nodes_[node].token = static_cast<std::int32_t>(i);
  }
  const auto first = std::find(is_first_byte_.begin(), is_first_byte_.end(), true);
  if (std::count(first, is_first_byte_.end(), true) == 1)
    only_first_byte_ = static_cast<char>(first - is_first_byte_.begin());
}

std::pair<std::int32_t, std::size_t> AddedTokenFinder::longest_at(std::string_view text, std::size_t at,
                                                                  const ControlFilter* filter) const {
  const std::size_t start = at;
  std::pair<std::int32_t, std::size_t> longest{-1, at};
  std::uint32_t node = 0;
  while (at < text.size()) {
    const auto byte = static_cast<std::uint8_t>(text[at++]);
    const auto& children = nodes_[node].children;
    const auto found = std::find_if(children.begin(), children.end(), [&](const auto& e) { return e.first == byte; });
    if (found == children.end()) break;
    node = found->second;
    const std::int32_t token = nodes_[node].token;
    if (token < 0) continue;
    const bool is_control = filter != nullptr && tokens_[static_cast<std::size_t>(token)]->is_special;
    if (!is_control || filter->allows(start, at)) longest = {token, at};
  }
  return longest;
}

AddedTokenFinder::Found AddedTokenFinder::find(std::string_view text, std::size_t& from, std::size_t done,
                                               ControlRule& rule) const {
  if (nodes_.size() == 1) from = text.size();  // it looks for nothing
  for (; from < text.size(); ++from) {
    if (only_first_byte_) from = std::min(text.find(*only_first_byte_, from), text.size());
    if (from == text.size()) break;
    if (!is_first_byte_[static_cast<std::uint8_t>(text[from])]) continue;
    const auto [index, match_end] = longest_at(text, from, rule.filter);
    if (index < 0) continue;
    const AddedToken& token = *tokens_[static_cast<std::size_t>(index)];
    std::size_t begin = from, end = match_end;
    from = match_end - 1;  // a match that does not count is skipped whole
    if (rule.skips && token.is_special) {
      ++rule.num_skipped;
      continue;
    }
    if (token.is_single_word && (is_before("word", text, begin) || is_at("word", text, end))) continue;
    while (token.strips_left && begin > done && is_before("space", text, begin))
      begin = previous_code_point(text, begin);
    while (token.strips_right && is_at("space", text, end)) (void)next_code_point(text, end);
    if (token.strips_left && end <= done) continue;  // all of it went along with the token before
    from = match_end;
    return {std::max(begin, done), end, &token};
  }
  return {text.size(), text.size(), nullptr};
}

}  // namespace echelon
