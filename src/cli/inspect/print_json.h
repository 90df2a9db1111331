// How `echelon inspect` prints JSON.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace echelon {

/// A line in ASCII, since a terminal takes some characters above it as commands.
inline void print_json(const nlohmann::ordered_json& json) {
  fmt::print("{}\n", json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
}

}  // namespace echelon
