// Finds names with similar spelling.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace echelon {

/// Letters to insert, remove, replace or swap with their neighbour (optimal string alignment distance).
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// Whether at least half of the longer name's letters stay.
[[nodiscard]] bool is_similar(std::string_view a, std::string_view b);

/// The candidate with the smallest edit distance to `name` if it is similar; else empty.
[[nodiscard]] std::string similar(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace echelon
