#include "data/tokenizer/spaced_words.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace echelon {
namespace {

bool is_mark_for_space(const NormalizerStep& step) {
  return step.kind == NormalizerStep::Kind::replace && !step.is_regex && step.pattern == " " &&
         step.content == space_mark;
}

/// Whether a text becomes marks for its spaces, with something before it, and then one piece.
bool only_puts_marks(const TokenizerSpec& spec) {
  const auto is_prefix = [](const NormalizerStep& step) { return step.kind == NormalizerStep::Kind::prepend; };
  const auto is_expected = [&](const NormalizerStep& step) { return is_prefix(step) || is_mark_for_space(step); };
  if (!std::all_of(spec.normalizer.begin(), spec.normalizer.end(), is_expected)) return false;
  bool has_marks = std::any_of(spec.normalizer.begin(), spec.normalizer.end(), is_mark_for_space);
  for (const SplitStep& step : spec.splitter) {
    const bool puts_marks = step.kind == SplitStep::Kind::metaspace && !step.splits && step.pattern == space_mark;
    // Of spaces that became marks, as in Gemma's files: it finds none.
    const bool does_nothing =
        has_marks && step.kind == SplitStep::Kind::split && !step.is_regex && step.pattern == " " && !step.is_inverted;
    if (!puts_marks && !does_nothing) return false;
    has_marks = true;
  }
  return has_marks;
}

}  // namespace

std::optional<SpacedWords> SpacedWords::of(const TokenizerSpec& spec) {
  bool joins_marks = false, joins_words = false;
  for (const Merge& merge : spec.merges) {
    if (!spec.tokens[static_cast<std::size_t>(merge.right)].starts_with(space_mark)) continue;
    const bool is_after_mark = spec.tokens[static_cast<std::size_t>(merge.left)].ends_with(space_mark);
    (is_after_mark ? joins_marks : joins_words) = true;
  }
  // Such a token may be in the marked text of several words.
  const auto is_in_marked_text = [](const AddedToken& added) { return added.is_normalized; };
  if (!only_puts_marks(spec) || joins_words || std::any_of(spec.added.begin(), spec.added.end(), is_in_marked_text))
    return std::nullopt;
  return SpacedWords(joins_marks);
}

void SpacedWords::put_marks(std::string_view word, std::string& out) const {
  out.resize(word.size() * space_mark.size());
  char* next = out.data();
  for (const char c : word)
    next = c == ' ' ? std::copy(space_mark.begin(), space_mark.end(), next) : (*next = c, next + 1);
  out.resize(static_cast<std::size_t>(next - out.data()));
}

std::uint64_t SpacedWords::spaces_of(std::string_view block) {
  constexpr std::uint64_t ones = 0x0101010101010101u, low_bits = 0x7f * ones, high_bits = 0x80 * ones;
  constexpr std::uint64_t gather = 0x0102040810204080u;  // bit 0 of byte i becomes bit 56 + i
  std::array<std::uint64_t, block_size / 8> eights{};
  std::memcpy(eights.data(), block.data(), block.size());
  std::uint64_t spaces = 0;
  for (std::size_t i = 0; i < eights.size(); ++i) {
    const std::uint64_t other = eights[i] ^ ' ' * ones;  // a byte is 0 where there is a space
    const std::uint64_t zeros = ~(((other & low_bits) + low_bits) | other) & high_bits;
    spaces |= ((zeros >> 7) * gather >> 56) << 8 * i;
  }
  return spaces;
}

}  // namespace echelon
