#include "checkpoint/state/step_folders.h"

#include "base/error.h"
#include "checkpoint/state/manifest.h"
#include "checkpoint/state/state_names.h"
#include "files/file.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <system_error>

namespace echelon {
namespace {

constexpr std::string_view step_prefix = "step-";

struct StepFolder {
  std::int64_t step = 0;
  std::filesystem::path path;
  bool is_complete = false;
};

/// "step-007" is not written by us.
std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(step_prefix)) return {};
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [next, error] = std::from_chars(name.data() + step_prefix.size(), end, step);
  const bool is_step =
      error == std::errc() && next == end && step >= 0 && name == fmt::format("{}{}", step_prefix, step);
  return is_step ? std::optional(step) : std::nullopt;
}

/// By step.
std::vector<StepFolder> step_folders(const std::filesystem::path& base) {
  std::error_code error;
  std::vector<StepFolder> folders;
  for (const auto& entry : std::filesystem::directory_iterator(base, error))
    if (entry.is_directory(error) && !entry.is_symlink(error))
      if (const auto step = step_of(entry.path().filename().string()))
        folders.push_back({*step, entry.path(), find_manifest(entry.path()).has_value()});
  std::ranges::sort(folders, {}, &StepFolder::step);
  return folders;
}

/// Whether a file in a step's folder is written by a save.
bool is_part(const std::filesystem::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  std::error_code error;
  return entry.is_regular_file(error) && !entry.is_symlink(error) &&
         (name == checkpoint_tokenizer_name || attempt_of(name).has_value());
}

bool has_parts_alone(const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::directory_iterator entries(folder, error);
  return !error && std::all_of(begin(entries), end(entries), is_part);
}

void remove_one(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::remove(path, error);
  if (error) throw Failure(fmt::format("{} cannot be removed: {}", path.string(), error.message()));
}

/// Of a folder with a manifest: files of other attempts than the manifest's.
void remove_other_attempts(const std::filesystem::path& folder) {
  const auto manifest = find_manifest(folder);
  const auto kept = manifest ? attempt_of(manifest->filename().string()) : std::nullopt;
  std::vector<std::filesystem::path> removed;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (const auto attempt = attempt_of(entry.path().filename().string()); attempt && attempt != kept && is_part(entry))
      removed.push_back(entry.path());
  // A manifest before the files that it names.
  std::ranges::stable_partition(removed, [](const auto& path) { return path.extension() == ".json"; });
  for (const std::filesystem::path& path : removed) remove_one(path);
}

}  // namespace

std::filesystem::path step_folder(const std::filesystem::path& base, std::int64_t step) {
  return base / fmt::format("{}{}", step_prefix, step);
}

std::vector<SavedStep> saved_steps(const std::filesystem::path& base) {
  std::vector<SavedStep> saved;
  for (const StepFolder& folder : step_folders(base))
    if (const auto manifest = find_manifest(folder.path))
      saved.push_back({attempt_of(manifest->filename().string()).value_or(0), folder.step});
  std::ranges::sort(saved);
  return saved;
}

std::int64_t highest_attempt(const std::filesystem::path& base) {
  std::error_code error;
  std::int64_t highest = 0;
  for (const StepFolder& folder : step_folders(base))
    for (const auto& entry : std::filesystem::directory_iterator(folder.path, error))
      highest = std::max(highest, attempt_of(entry.path().filename().string()).value_or(0));
  return highest;
}

std::optional<std::int64_t> latest_step(const std::filesystem::path& base) {
  const auto saved = saved_steps(base);
  return saved.empty() ? std::nullopt : std::optional(saved.back().step);
}

std::vector<std::filesystem::path> foreign_step_folders(const std::filesystem::path& base) {
  std::vector<std::filesystem::path> foreign;
  for (const StepFolder& folder : step_folders(base))
    if (!folder.is_complete && !has_parts_alone(folder.path)) foreign.push_back(folder.path);
  return foreign;
}

void remove_litter(const std::filesystem::path& base) {
  for (const StepFolder& folder : step_folders(base)) {
    if (folder.is_complete)
      remove_other_attempts(folder.path);
    else if (has_parts_alone(folder.path))
      delete_folder(folder.path);
  }
}

void prune_steps(const std::filesystem::path& base, std::int64_t step, const KeptSteps& kept,
                 const std::vector<std::int64_t>& damaged) {
  if (kept.latest <= 0) return;
  std::vector<StepFolder> folders = step_folders(base);
  std::erase_if(folders, [&](const StepFolder& folder) {
    return !folder.is_complete || folder.step > step || std::ranges::find(damaged, folder.step) != damaged.end();
  });
  const auto num_folders = std::ssize(folders);
  for (std::int64_t i = 0; i < num_folders - kept.latest; ++i) {
    const StepFolder& folder = folders[static_cast<std::size_t>(i)];
    const bool stays = (kept.every > 0 && folder.step % kept.every == 0) || !has_parts_alone(folder.path);
    if (stays) continue;
    while (const auto manifest = find_manifest(folder.path)) {
      remove_one(*manifest);
      sync_folder(folder.path);
    }
    delete_folder(folder.path);
  }
}

}  // namespace echelon
