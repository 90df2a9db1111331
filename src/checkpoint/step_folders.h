// The step-N folders of a run, and which of them are kept.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace echelon {

/// BASE/step-N.
[[nodiscard]] std::filesystem::path step_folder(const std::filesystem::path& base, std::int64_t step);

/// The steps with complete folders, ascending; temporary folders and other names are ignored. Empty if the base does
/// not exist.
[[nodiscard]] std::vector<std::int64_t> saved_steps(const std::filesystem::path& base);

[[nodiscard]] std::optional<std::int64_t> latest_step(const std::filesystem::path& base);

/// Of the steps up to `step`, which was just written, keeps the `keep_latest_k` latest (0 or less: all). Later ones
/// belong to an earlier run and are kept, and so is a folder with anything but a model. Also deletes folders that a
/// crash left half-written or half-deleted. Throws Failure.
void prune_steps(const std::filesystem::path& base, std::int64_t step, std::int64_t keep_latest_k);

}  // namespace echelon
