#include "base/error.h"

#include "base/text/similar.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace echelon {
namespace {

std::string without_zeros(const std::string& sentence) {
  std::string out;
  for (const char c : sentence) {
    if (c == '\0')
      out += "\\x00";
    else
      out += c;
  }
  return out;
}

/// What other software calls values of Echelon, in small letters without dashes.
constexpr std::pair<std::string_view, std::string_view> other_names[] = {
    {"bf16", "bfloat16"},   {"fp16", "float16"},   {"half", "float16"},           {"fp32", "float32"},
    {"float", "float32"},   {"single", "float32"}, {"fp64", "float64"},           {"double", "float64"},
    {"fp8", "float8"},      {"gpu", "cuda"},       {"tf32", "tensorfloat32"},     {"zigzag", "headtail"},
    {"alltoall", "direct"}, {"a2a", "direct"},     {"megatron", "megatron-core"}, {"megatronlm", "megatron-core"}};

/// In small letters, without dashes and underscores.
std::string plain(std::string_view name) {
  std::string text;
  for (const unsigned char c : name)
    if (c != '-' && c != '_') text += static_cast<char>(std::tolower(c));
  return text;
}

/// 0: equal; 1: one starts with the other; 2: one has the other in it, or starts with it but for a letter; 3: neither.
int kinship(std::string_view a, std::string_view b) {
  constexpr std::size_t least_letters = 3, least_of_part = 4, least_of_almost = 5;  // fewer say little
  if (a == b) return 0;
  const std::string_view shorter = a.size() < b.size() ? a : b, longer = a.size() < b.size() ? b : a;
  if (shorter.size() < least_letters) return 3;
  if (longer.starts_with(shorter)) return 1;
  if (shorter.size() >= least_of_part && longer.find(shorter) != std::string_view::npos) return 2;
  if (shorter.size() < least_of_almost) return 3;
  const auto starts_with_but_for_a_letter = [&](std::size_t num_more) {
    return edit_distance(shorter, longer.substr(0, shorter.size() + num_more)) <= 1;
  };
  return starts_with_but_for_a_letter(0) || starts_with_but_for_a_letter(1) ? 2 : 3;
}

}  // namespace

Error::Error(const std::string& sentence, ExitStatus status)
    : std::runtime_error(without_zeros(sentence)), status_(status) {}

std::string closest_name(std::string_view name, std::span<const std::string_view> candidates) {
  const std::string text = plain(name);
  if (text.empty() && !candidates.empty()) return std::string(candidates.front());
  for (const auto& [other, own] : other_names)
    if (text == other && std::ranges::find(candidates, own) != candidates.end()) return std::string(own);
  const auto distance = [&](std::string_view candidate) {
    const std::string other = plain(candidate);
    return std::pair(kinship(text, other), edit_distance(text, other));
  };
  const auto closest = std::ranges::min_element(candidates, {}, distance);
  return closest == candidates.end() ? std::string() : std::string(*closest);
}

}  // namespace echelon
