// What checkpoint.load means in the folder of a run.
#pragma once

#include "spec/config/run_config.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace echelon {

/// The values that are neither a step nor a path.
inline constexpr std::string_view load_words[] = {"auto", "latest", "none"};

/// At most one of `step` and `other_run` is set; without both it is one of load_words.
struct LoadChoice {
  std::optional<std::int64_t> step = {};                // of the run's own, also where its folder was named
  std::optional<std::filesystem::path> other_run = {};  // what is no choice, no step, and no step's folder of the run
};
[[nodiscard]] LoadChoice load_choice(const RunConfig& config);

/// The folder from which a run resumes first, if it may; empty: it starts.
[[nodiscard]] std::filesystem::path first_to_load(const RunConfig& config);

}  // namespace echelon
