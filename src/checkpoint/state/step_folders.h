// The step-N folders of a run: which are complete, which are kept, and what dead attempts left.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace echelon {

/// BASE/step-N.
[[nodiscard]] std::filesystem::path step_folder(const std::filesystem::path& base, std::int64_t step);

/// A folder with a manifest.
struct SavedStep {
  std::int64_t attempt = 0;  // that published it
  std::int64_t step = 0;
  auto operator<=>(const SavedStep&) const = default;
};

/// The steps whose folders have a manifest, oldest first. A later attempt's is newer, even if its step is smaller: then
/// the attempt resumed from before that step. Empty if the base does not exist.
[[nodiscard]] std::vector<SavedStep> saved_steps(const std::filesystem::path& base);
[[nodiscard]] std::optional<std::int64_t> latest_step(const std::filesystem::path& base);
/// The highest attempt that left a file in a step's folder; 0: none did.
[[nodiscard]] std::int64_t highest_attempt(const std::filesystem::path& base);

/// The step-N folders without a manifest that hold something else than parts of a checkpoint, and links of these names:
/// a save would mix with it, or write through the link.
[[nodiscard]] std::vector<std::filesystem::path> foreign_step_folders(const std::filesystem::path& base);

/// Deletes step-N folders without a manifest that hold nothing but parts of a checkpoint, and in the others the parts
/// of attempts that their manifest does not name. Only for the process that has claimed the run. Throws Failure.
void remove_litter(const std::filesystem::path& base);

struct KeptSteps {
  std::int64_t latest = 0;  // this many; 0: all
  std::int64_t every = 0;   // and those at multiples of this; 0: none
};

/// Deletes complete checkpoints of steps up to `step`, which was just written, but for those that are kept. Later ones
/// belong to an earlier run and are kept, and so are those in `damaged` and folders with anything but a checkpoint.
/// The manifest goes first: a half-deleted folder is litter, which the next call deletes. Throws Failure.
void prune_steps(const std::filesystem::path& base, std::int64_t step, const KeptSteps& kept,
                 const std::vector<std::int64_t>& damaged = {});

}  // namespace echelon
