#include "data/tokenizer/splitting/regex.h"

#include "base/error.h"
#include "base/text/printable.h"
#include "data/tokenizer/splitting/class_syntax.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace echelon {
namespace {

std::string reason(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

std::string written_out(const CodePointSet& set) {
  std::string ranges;
  for (const CodePointRange& range : set.ranges()) {
    // PCRE2 refuses surrogates, which no valid text has.
    const auto write = [&](char32_t first, char32_t end) {
      if (first >= end) return;
      ranges += fmt::format(R"(\x{{{:x}}})", static_cast<std::uint32_t>(first));
      if (end - first > 1) ranges += fmt::format(R"(-\x{{{:x}}})", static_cast<std::uint32_t>(end - 1));
    };
    write(range.first, std::min<char32_t>(range.end, 0xd800));
    write(std::max<char32_t>(range.first, 0xe000), range.end);
  }
  return ranges.empty() ? "(?!)" : "[" + ranges + "]";
}

/// As a pattern has it: with (?i), [^a] is neither a nor A, and \p{Lu} and its like ignore (?i).
std::string written_class(const CodePointSet& set, std::string_view source, bool has_flags) {
  if (source.starts_with("[^")) {
    const std::string rest = written_out(set.complement());
    return rest.starts_with('[') ? "[^" + rest.substr(1) : written_out(set);
  }
  const bool keeps_case =
      has_flags && source.starts_with('\\') && std::string_view("sSwWdDpP").find(source[1]) != std::string_view::npos;
  return keeps_case ? "(?-i:" + written_out(set) + ")" : written_out(set);
}

/// What PCRE2 reads differently from Oniguruma, whose \h is a hexadecimal digit.
void require_same_meaning(const std::string& pattern, std::size_t at) {
  const std::string_view rest = std::string_view(pattern).substr(at);
  const bool is_letter = rest.size() > 1 && ((rest[1] | 0x20) >= 'a' && (rest[1] | 0x20) <= 'z');
  require(
      !rest.starts_with('\\') || !is_letter || std::string_view("bBAzZGeaKRNk").find(rest[1]) != std::string_view::npos,
      "the tokenizer's pattern {} has {}, which is not supported", printable(pattern, 200), rest.substr(0, 2));
  if (!rest.starts_with("(?")) return;
  const std::string_view flags = rest.substr(2, rest.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", 2) - 2);
  const bool is_option =
      rest.size() > 2 + flags.size() && (rest[2 + flags.size()] == ':' || rest[2 + flags.size()] == ')');
  require(!is_option || flags.find_first_not_of("ix-") == std::string_view::npos,
          "the tokenizer's pattern {} has (?{}, which is not supported; (?i and (?x are", printable(pattern, 200),
          flags);
}

/// Whether what starts at pattern[at] is a class; a literal character is not.
bool is_class(std::string_view pattern, std::size_t at) {
  if (pattern[at] == '[') return true;
  return pattern[at] == '\\' && at + 1 < pattern.size() &&
         std::string_view("sSwWdDpPxunrtfv").find(pattern[at + 1]) != std::string_view::npos;
}

/// \b between a character of a word and another, \B anywhere else.
std::string word_boundary(bool is_negated) {
  std::size_t at = 0;
  const std::string word = written_out(*read_class("\\w", at));
  return is_negated ? fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word)
                    : fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word);
}

}  // namespace

std::string as_pcre2(const std::string& pattern) {
  std::string out;
  const bool has_flags = pattern.find("(?i") != std::string::npos;
  for (std::size_t at = 0; at < pattern.size();) {
    if (is_class(pattern, at)) {
      const std::string_view source = std::string_view(pattern).substr(at);
      const auto set = read_class(pattern, at);
      require(set.has_value(), "the tokenizer's pattern {} has a class that is not supported: {}", pattern,
              pattern.substr(at, 20));
      out += written_class(*set, source, has_flags);
    } else {
      require_same_meaning(pattern, at);
      const std::string_view escape = std::string_view(pattern).substr(at, 2);
      if (escape == "\\b" || escape == "\\B") {
        out += word_boundary(escape == "\\B");
        at += 2;
        continue;
      }
      const std::size_t length = pattern[at] == '\\' && at + 1 < pattern.size() ? 2 : 1;
      out += pattern.substr(at, length);
      at += length;
    }
  }
  return out;
}

struct Regex::Code {
  std::string pattern;
  pcre2_code* code = nullptr;
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }
};

struct Regex::Matches::Data {
  const Code& code;
  std::string_view text;
  pcre2_match_data* found;
  Data(const Code& of, std::string_view in)
      : code(of), text(in), found(pcre2_match_data_create_from_pattern(of.code, nullptr)) {}
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;
  ~Data() { pcre2_match_data_free(found); }
};

Regex::Regex(const std::string& pattern) : code_(std::make_unique<Code>()) {
  code_->pattern = pattern;
  const std::string source = as_pcre2(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE,
                    &error, &offset, nullptr);  // Oniguruma's ^ and $ are of lines
  require(code_->code != nullptr, "the tokenizer's pattern {} cannot be compiled: {}", printable(pattern, 200),
          reason(error));
  pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE);  // without a JIT, matching is slower with the same result
}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

Regex::Matches::Matches(const Regex& regex, std::string_view text)
    : data_(std::make_unique<Data>(*regex.code_, text)) {}
Regex::Matches::~Matches() = default;
Regex::Matches::Matches(Matches&&) noexcept = default;
Regex::Matches& Regex::Matches::operator=(Matches&&) noexcept = default;

std::string_view Regex::Matches::find(std::size_t offset) {
  const auto& [code, text, found] = *data_;
  const int result = pcre2_match(code.code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), offset,
                                 PCRE2_NO_UTF_CHECK, found, nullptr);
  if (result == PCRE2_ERROR_NOMATCH) return text.substr(text.size());
  require(result > 0, "the tokenizer's pattern {} gives up on a text: {}", code.pattern, reason(result));
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(found);
  require(offset <= bounds[0] && bounds[0] <= bounds[1], "the tokenizer's pattern {} matches backwards", code.pattern);
  return text.substr(bounds[0], bounds[1] - bounds[0]);
}

}  // namespace echelon
