#include "data/tokenizer/splitter.h"

#include "base/error.h"
#include "base/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>

namespace echelon {
namespace {

template <auto free>
struct Free {
  template <class T>
  void operator()(T* object) const {
    free(object);
  }
};
using Code = std::unique_ptr<pcre2_code, Free<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;

std::string reason(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

// The patterns in tokenizer files are Oniguruma's. PCRE2 counts U+180E as white space, unlike Unicode since version
// 6.3, and does not support \u1234.
std::string as_pcre2(std::string_view pattern) {
  const std::string white_space = R"(\t-\r\x{20}\x{85}\p{Z})";
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    if (c != '\\' || i + 1 == pattern.size()) {
      out += c;
      continue;
    }
    const char escaped = pattern[++i];
    if (escaped == 's') {
      out += in_class ? white_space : "[" + white_space + "]";
    } else if (escaped == 'S' && !in_class) {
      out += "[^" + white_space + "]";
    } else if (escaped == 'u' && pattern.size() - i > 4) {
      out += fmt::format(R"(\x{{{}}})", pattern.substr(i + 1, 4));
      i += 4;
    } else {
      out += {c, escaped};
    }
  }
  return out;
}

}  // namespace

class Splitter::Regex {
 public:
  explicit Regex(const std::string& pattern) : pattern_(pattern) {
    const std::string source = as_pcre2(pattern);
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(), PCRE2_UTF | PCRE2_UCP, &error,
                              &offset, nullptr));
    require(code_ != nullptr, "the tokenizer's pattern {} cannot be compiled: {}", pattern, reason(error));
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // without a JIT, matching is slower with the same result
  }

  [[nodiscard]] MatchData match_data() const {
    return MatchData(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
  }

  /// The first match at or after `offset` in valid UTF-8; empty at the end if there is none.
  [[nodiscard]] std::string_view find(std::string_view text, std::size_t offset, pcre2_match_data* data) const {
    const int result = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), offset,
                                   PCRE2_NO_UTF_CHECK, data, nullptr);
    if (result == PCRE2_ERROR_NOMATCH) return text.substr(text.size());
    require(result > 0, "the tokenizer's pattern {} gives up on a text: {}", pattern_, reason(result));
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data);
    require(offset <= bounds[0] && bounds[0] <= bounds[1], "the tokenizer's pattern {} matches backwards", pattern_);
    return text.substr(bounds[0], bounds[1] - bounds[0]);
  }

 private:
  std::string pattern_;
  Code code_;
};

Splitter::Splitter(const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) regexes_.emplace_back(pattern);
}
Splitter::~Splitter() = default;
Splitter::Splitter(Splitter&&) noexcept = default;
Splitter& Splitter::operator=(Splitter&&) noexcept = default;

void Splitter::split(std::string_view text, const std::function<void(std::string_view piece)>& visit) const {
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    if (valid > 0) split(text.substr(0, valid), 0, visit);
    std::size_t end = valid;
    while (end < text.size() && utf8_character_length(text.substr(end)) == 0) ++end;
    if (end > valid) visit(text.substr(valid, end - valid));
    text.remove_prefix(end);
  }
}

void Splitter::split(std::string_view text, std::size_t level,
                     const std::function<void(std::string_view piece)>& visit) const {
  if (level == regexes_.size()) return visit(text);
  const Regex& regex = regexes_[level];
  const MatchData data = regex.match_data();
  const auto descend = [&](std::size_t begin, std::size_t end) {
    if (begin == end) return;
    if (level + 1 == regexes_.size()) return visit(text.substr(begin, end - begin));
    split(text.substr(begin, end - begin), level + 1, visit);
  };
  std::size_t done = 0;  // where the next piece starts
  for (std::size_t from = 0; from < text.size();) {
    const std::string_view match = regex.find(text, from, data.get());
    const auto begin = static_cast<std::size_t>(match.data() - text.data());
    if (begin == text.size()) break;
    if (match.empty()) {
      from = begin + utf8_character_length(text.substr(begin));
      continue;
    }
    descend(done, begin);
    done = from = begin + match.size();
    descend(begin, done);
  }
  descend(done, text.size());
}

}  // namespace echelon
