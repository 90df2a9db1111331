// The list of a folder's tensors, as text and as JSON.
#pragma once

#include "checkpoint/hf/inspect.h"

#include <nlohmann/json.hpp>

#include <string_view>
#include <vector>

namespace echelon {

/// A line for each, then "NAME: 2 tensors, 12 parameters, 0.1 MB".
void print_tensors(std::string_view name, const std::vector<ListedTensor>& tensors);

/// "num_parameters", "num_bytes" and "tensors".
[[nodiscard]] nlohmann::ordered_json tensors_json(const std::vector<ListedTensor>& tensors);

}  // namespace echelon
