// layout = { item ["*" number] }; item = letter | "|" | "(" layout ")"
#include "spec/layout_letters.h"

#include "base/error.h"

#include <charconv>

namespace echelon {
namespace {

constexpr std::size_t max_length = 1 << 20;  // after expanding repeats; a layout has a letter for each layer

class LetterReader {
 public:
  explicit LetterReader(std::string_view text) : text_(text) {}

  std::string read_all() {
    std::string letters = read_items(0);
    if (position_ < text_.size()) refuse("')' without a '('");
    return letters;
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw Error(fmt::format(
        "parallelism.pipeline_parallel_layout = '{}' has {} at character {} (examples: 'Et|tL', 'E(t|)*4L')",
        text_.substr(0, 80), what, position_ + 1));
  }

  void skip_blanks() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == ',')) ++position_;
  }

  std::string read_items(int depth) {
    std::string letters;
    for (skip_blanks(); position_ < text_.size() && text_[position_] != ')'; skip_blanks()) {
      const std::string item = read_item(depth);
      for (std::size_t times = read_repeat(item.size()); times > 0; --times) letters += item;
      if (letters.size() > max_length) refuse(fmt::format("more than {} letters", max_length));
    }
    return letters;
  }

  std::string read_item(int depth) {
    const char c = text_[position_];
    if (c == 'm') refuse("'m', a layer of multi-token prediction, which is not supported,");
    if (c == 'E' || c == 't' || c == 'L' || c == '|') return std::string(1, text_[position_++]);
    if (c != '(') refuse(fmt::format("'{}', which is not one of E, t, L, |, ( and )", c));
    if (depth > 8) refuse("more than 8 groups in each other");
    ++position_;
    std::string group = read_items(depth + 1);
    if (position_ == text_.size()) refuse("a '(' without its ')'");
    ++position_;
    return group;
  }

  std::size_t read_repeat(std::size_t length) {
    skip_blanks();
    if (position_ == text_.size() || text_[position_] != '*') return 1;
    ++position_;
    skip_blanks();
    std::size_t times = 0;
    const char* const begin = text_.data() + position_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), times);
    if (error != std::errc() || times < 1 || times > max_length || times * length > max_length)
      refuse("a '*' without a number of times from 1 on");
    position_ += static_cast<std::size_t>(end - begin);
    return times;
  }

  std::string_view text_;
  std::size_t position_ = 0;
};

}  // namespace

std::vector<std::string> layout_letters(std::string_view text) {
  std::vector<std::string> stages(1);
  for (const char letter : LetterReader(text).read_all()) {
    if (letter == '|')
      stages.emplace_back();
    else
      stages.back() += letter;
  }
  return stages;
}

}  // namespace echelon
