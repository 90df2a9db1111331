#include "checkpoint/state/state_names.h"

#include <fmt/format.h>

#include <charconv>

namespace echelon {
namespace {

/// Takes a number and `end` after it off the front of a text.
std::optional<std::int64_t> take_number(std::string_view& text, char end) {
  std::int64_t number = 0;
  const auto [next, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto num_digits = static_cast<std::size_t>(next - text.data());
  const bool ends = end == '\0' ? num_digits == text.size() : num_digits < text.size() && *next == end;
  if (error != std::errc() || number < 0 || !ends) return {};
  text.remove_prefix(end == '\0' ? num_digits : num_digits + 1);
  return number;
}

std::optional<Range> take_range(std::string_view& text, char end) {
  const auto first = take_number(text, ':');
  const auto last = first ? take_number(text, end) : std::nullopt;
  if (!last || *last <= *first) return {};
  return Range{*first, *last - *first};
}

std::string range_text(Range range) { return fmt::format("{}:{}", range.first, range.first + range.count); }

}  // namespace

std::string to_text(const StateTensorName& name) {
  return fmt::format("{}/{}@{}{}", name.state, name.parameter, name.is_vector ? "" : range_text(name.rows) + ",",
                     range_text(name.columns));
}

std::optional<StateTensorName> parse_state_tensor_name(std::string_view text) {
  const std::size_t slash = text.find('/'), at = text.rfind('@');
  if (slash == std::string_view::npos || at == std::string_view::npos || at < slash) return {};
  StateTensorName name;
  name.state = text.substr(0, slash);
  name.parameter = text.substr(slash + 1, at - slash - 1);
  std::string_view place = text.substr(at + 1);
  name.is_vector = place.find(',') == std::string_view::npos;
  const auto rows = name.is_vector ? Range{0, 1} : take_range(place, ',');
  const auto columns = rows ? take_range(place, '\0') : std::nullopt;
  if (!columns || name.state.empty() || name.parameter.empty()) return {};
  name.rows = *rows;
  name.columns = *columns;
  return name;
}

std::string state_file_name(std::int64_t attempt, int rank) {
  return fmt::format("attempt-{:04}-rank-{:05}.safetensors", attempt, rank);
}

std::string manifest_name(std::int64_t attempt) { return fmt::format("attempt-{:04}-manifest.json", attempt); }

std::optional<std::int64_t> attempt_of_manifest(std::string_view name) {
  const auto attempt = attempt_of(name);
  return attempt && name == manifest_name(*attempt) ? attempt : std::nullopt;
}

std::optional<std::int64_t> attempt_of(std::string_view name) {
  constexpr std::string_view begin = "attempt-", tensors = ".safetensors", half_written = ".tmp";
  if (!name.starts_with(begin)) return {};
  std::string_view rest = name.substr(begin.size());
  const auto attempt = take_number(rest, '-');
  if (!attempt || *attempt > most_attempts) return {};
  if (name == manifest_name(*attempt) || name == manifest_name(*attempt) + std::string(half_written)) return attempt;
  constexpr std::string_view rank = "rank-";
  if (!rest.starts_with(rank) || !rest.ends_with(tensors)) return {};
  rest = rest.substr(rank.size(), rest.size() - rank.size() - tensors.size());
  const auto number = take_number(rest, '\0');
  return number && name == state_file_name(*attempt, static_cast<int>(*number)) ? attempt : std::nullopt;
}

}  // namespace echelon
