#include "data/tokenizer/unicode/code_points.h"

#include <algorithm>
#include <utility>

namespace echelon {

CodePointSet::CodePointSet(std::vector<CodePointRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const CodePointRange& a, const CodePointRange& b) { return a.first < b.first; });
  for (const CodePointRange& range : ranges) {
    if (range.first >= range.end) continue;
    if (!ranges_.empty() && range.first <= ranges_.back().end)
      ranges_.back().end = std::max(ranges_.back().end, range.end);
    else
      ranges_.push_back(range);
  }
}

bool CodePointSet::contains(char32_t code) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), code,
                                      [](char32_t c, const CodePointRange& range) { return c < range.first; });
  return after != ranges_.begin() && code < std::prev(after)->end;
}

CodePointSet CodePointSet::united(const CodePointSet& other) const {
  std::vector<CodePointRange> both = ranges_;
  both.insert(both.end(), other.ranges_.begin(), other.ranges_.end());
  return CodePointSet(std::move(both));
}

CodePointSet CodePointSet::complement() const {
  std::vector<CodePointRange> gaps;
  char32_t first = 0;
  for (const CodePointRange& range : ranges_) {
    gaps.push_back({first, range.first});
    first = range.end;
  }
  gaps.push_back({first, num_code_points});
  return CodePointSet(std::move(gaps));
}

void append_utf8(char32_t code, std::string& text) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  const auto tail = [&](int shift) { put(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0 | code >> 6);
    return tail(0);
  }
  if (code < 0x10000) {
    put(0xe0 | code >> 12);
    tail(6);
    return tail(0);
  }
  put(0xf0 | code >> 18);
  tail(12);
  tail(6);
  tail(0);
}

}  // namespace echelon
