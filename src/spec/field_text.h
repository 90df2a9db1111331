// A model's value as text, and back: parse is false if the text is none.
#pragma once

#include "spec/model_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace echelon::field_text {

inline std::string text_of(bool value) { return value ? "true" : "false"; }
inline std::string text_of(double value) { return fmt::format("{}", value); }
inline std::string text_of(std::int64_t value) { return fmt::format("{}", value); }
inline bool parse(std::string_view text, bool& value) {
  value = text == "true";
  return value || text == "false";
}
template <class T>
requires std::is_arithmetic_v<T>
bool parse(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}
template <class Choice>
struct Names;
template <>
struct Names<NormKind> {
  static constexpr std::string_view all[] = {"layer_norm", "rms_norm"};
};
template <>
struct Names<PositionKind> {
  static constexpr std::string_view all[] = {"learned", "rope"};
};
template <>
struct Names<MlpKind> {
  static constexpr std::string_view all[] = {"gelu", "swiglu", "geglu", "gelu_erf"};
};
template <>
struct Names<NormPlacement> {
  static constexpr std::string_view all[] = {"before", "after", "both"};
};
template <>
struct Names<LayerType> {
  static constexpr std::string_view all[] = {"full_attention", "sliding_attention"};
};
template <>
struct Names<RopeType> {
  static constexpr std::string_view all[] = {"llama3", "linear", "dynamic", "yarn", "longrope"};
};

template <class Choice>
requires std::is_enum_v<Choice> std::string text_of(Choice value) {
  return std::string(Names<Choice>::all[static_cast<std::size_t>(value)]);
}
template <class Choice>
requires std::is_enum_v<Choice>
bool parse(std::string_view text, Choice& value) {
  for (std::size_t i = 0; i < std::size(Names<Choice>::all); ++i)
    if (Names<Choice>::all[i] == text) return value = static_cast<Choice>(i), true;
  return false;
}

template <class T>
inline std::string text_of(const std::vector<T>& list) {
  std::string text;
  for (const T& value : list) text += (text.empty() ? "" : ",") + text_of(value);
  return text;
}

template <class T>
bool parse(std::string_view text, std::vector<T>& list) {
  list.clear();
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    if (!parse(text.substr(0, comma), list.emplace_back())) return false;
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return true;
}

}  // namespace echelon::field_text
