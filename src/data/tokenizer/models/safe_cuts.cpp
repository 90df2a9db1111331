#include "data/tokenizer/models/safe_cuts.h"

#include "base/text/utf8.h"
#include "data/tokenizer/unicode/code_points.h"

#include <bit>

namespace echelon {
char32_t SafeCuts::next_other(std::string_view text, std::size_t& at) {
  if (utf8_character_length(text.substr(at)) == 0) return ++at, not_utf8;
  const char32_t code = next_code_point(text, at);
  return code == mark_code ? mark : code == mark ? mark_code : code;
}

SafeCuts::SafeCuts(const TokenizerSpec& spec, bool is_complete)
    : any_(true),
      is_complete_(is_complete),
      others_(spec.merges.size()),
      is_merge_(std::bit_ceil(spec.merges.size() / 4 + 1)) {
  if (!is_complete_) {  // two characters without tokens may become one, unless the second one is the mark
    for (auto& row : small_) {
      row.fill(joins_always);
      row[mark] = 0;
    }
  }
  for (const Merge& merge : spec.merges) {
    const std::string& left = spec.tokens[static_cast<std::size_t>(merge.left)];
    const std::string& right = spec.tokens[static_cast<std::size_t>(merge.right)];
    if (left.empty() || right.empty()) continue;
    const std::size_t last = previous_code_point(left, left.size());
    std::size_t before = last > 0 ? previous_code_point(left, last) : 0, at = last, after = 0;
    Window window;
    if (last > 0) window.before = next_character(left, before);
    window.left = next_character(left, at);
    window.right = next_character(right, after);
    window.after = next_character(right, after);
    add(window);
  }
}

void SafeCuts::add(const Window& window) {
  const bool are_small = (window.left | window.right) < num_small;
  const Forms known = are_small ? small_[window.left][window.right] : forms_of(window.left, window.right);
  const auto forms = static_cast<Forms>(known | form(window.before != nothing, window.after != nothing));
  if (are_small)
    small_[window.left][window.right] = forms;
  else
    others_.set(window.left, window.right, forms);
  is_merge_[bit_of(window) / 64] |= std::uint64_t{1} << bit_of(window) % 64;
}

SafeCuts::Forms SafeCuts::forms_of(char32_t left, char32_t right) const {
  if (left == not_utf8 || right == not_utf8 || (!is_complete_ && right != mark)) return joins_always;
  const Forms* found = others_.find(left, right);
  return found != nullptr ? *found : Forms{0};
}

bool SafeCuts::is_joined(const Window& window, Forms forms) const {
  const auto is_merge = [&](bool is_left_longer, bool is_right_longer) {
    if ((forms & form(is_left_longer, is_right_longer)) == 0) return false;
    const std::size_t bit = bit_of({is_left_longer ? window.before : nothing, window.left, window.right,
                                    is_right_longer ? window.after : nothing});
    return (is_merge_[bit / 64] >> bit % 64 & 1) != 0;
  };
  return is_merge(true, false) || is_merge(false, true) || is_merge(true, true);
}

std::size_t SafeCuts::bit_of(const Window& window) const {
  constexpr std::uint64_t odd = 0x9e3779b97f4a7c15u;
  const std::uint64_t outer = std::uint64_t{window.before} << 32 | window.after;
  const std::uint64_t inner = std::uint64_t{window.left} << 32 | window.right;
  const std::uint64_t mixed = (outer * odd ^ inner) * odd;
  return (mixed ^ mixed >> 29) * odd >> 20 & (64 * is_merge_.size() - 1);
}

}  // namespace echelon
