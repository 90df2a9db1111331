#include "data/tokenizer/decoder.h"

#include "base/text/utf8.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/normalizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace echelon {
namespace {

/// <0x41> is the byte 0x41.
std::string without_fallback(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return token;
  std::uint8_t byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  return error == std::errc() && end == token.data() + 5 ? std::string(1, static_cast<char>(byte)) : token;
}

std::string stripped(const std::string& token, const DecodeStep& step) {
  std::string_view text = token;
  for (std::int64_t i = 0; i < step.start && text.starts_with(step.pattern); ++i)
    text.remove_prefix(step.pattern.size());
  for (std::int64_t i = 0; i < step.stop && text.ends_with(step.pattern); ++i) text.remove_suffix(step.pattern.size());
  return std::string(text);
}

}  // namespace

TokenDecoder::TokenDecoder(const std::vector<DecodeStep>& steps) {
  for (const DecodeStep& step : steps)
    steps_.push_back({step, step.is_regex ? std::optional(TextPattern::of_expression(step.pattern)) : std::nullopt});
}

bool TokenDecoder::is_local() const {
  return !steps_.empty() && std::all_of(steps_.begin(), steps_.end(), [](const Step& step) {
    const DecodeStep& values = step.values;
    const bool is_strip = values.kind == DecodeStep::Kind::strip;
    return !is_strip && !(values.kind == DecodeStep::Kind::metaspace && values.prepend != PrependScheme::never);
  });
}

void TokenDecoder::apply(const Step& step, bool is_first, std::string& token) {
  const DecodeStep& values = step.values;
  switch (values.kind) {
    case DecodeStep::Kind::byte_level: token = from_byte_alphabet(token); break;
    case DecodeStep::Kind::byte_fallback: token = without_fallback(token); break;
    case DecodeStep::Kind::replace:
      token = step.pattern ? with_replacements(token, *step.pattern, values.content)
                           : with_replacements(token, values.pattern, values.content);
      break;
    case DecodeStep::Kind::strip: token = stripped(token, values); break;
    case DecodeStep::Kind::metaspace:
      token = with_replacements(token, values.pattern, is_first && values.prepend != PrependScheme::never ? "" : " ");
      break;
    case DecodeStep::Kind::fuse: break;
  }
}

std::string TokenDecoder::decode(std::vector<std::string> tokens) const {
  for (const Step& step : steps_) {
    if (step.values.kind == DecodeStep::Kind::fuse) tokens = {fmt::format("{}", fmt::join(tokens, ""))};
    for (std::size_t i = 0; i < tokens.size(); ++i) apply(step, i == 0, tokens[i]);
  }
  return fmt::format("{}", fmt::join(tokens, steps_.empty() ? " " : ""));
}

std::string TokenDecoder::decode_one(const std::string& token) const {
  std::string text = token;
  for (const Step& step : steps_) {
    if (step.values.kind != DecodeStep::Kind::strip) apply(step, false, text);
  }
  return text;
}

}  // namespace echelon
