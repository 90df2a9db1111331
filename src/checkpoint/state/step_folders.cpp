#include "checkpoint/state/step_folders.h"

#include "base/error.h"
#include "checkpoint/state/manifest.h"
#include "checkpoint/state/state_names.h"
#include "files/file.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string>

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
  std::vector<StepFolder> folders;
  for (const std::string& name : list_folder(base))
    if (const auto step = step_of(name); step && kind_of(base / name) == NameKind::folder)
      folders.push_back({*step, base / name, find_manifest(base / name).has_value()});
  std::ranges::sort(folders, {}, &StepFolder::step);
  return folders;
}

/// Whether a file in a step's folder is written by a save.
bool is_part(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  return (name == checkpoint_tokenizer_name || attempt_of(name).has_value()) && kind_of(path) == NameKind::file;
}

bool has_parts_alone(const std::filesystem::path& folder) {
  return std::ranges::all_of(list_folder(folder), [&](const std::string& name) { return is_part(folder / name); });
}

/// The files that a manifest names; none if it cannot be read.
std::set<std::string> files_of(const std::filesystem::path& folder) {
  std::set<std::string> names;
  try {
    for (const Manifest::File& file : read_manifest(folder).files) names.insert(file.name);
  } catch (const Error&) {
    // Then nothing tells a file of another attempt from one that the manifest names.
  }
  return names;
}

/// Of a folder with a manifest: files of other attempts than the manifest's, unless it names them.
void remove_other_attempts(const std::filesystem::path& folder) {
  const auto manifest = find_manifest(folder);
  const auto kept = manifest ? attempt_of(manifest->filename().string()) : std::nullopt;
  std::vector<std::filesystem::path> removed;
  for (const std::string& name : list_folder(folder))
    if (const auto attempt = attempt_of(name); attempt && attempt != kept && is_part(folder / name))
      removed.push_back(folder / name);
  if (removed.empty()) return;
  const std::set<std::string> named = files_of(folder);
  std::erase_if(removed, [&](const auto& path) { return named.contains(path.filename().string()); });
  // A manifest before the files that it names.
  std::ranges::stable_partition(removed, [](const auto& path) { return path.extension() == ".json"; });
  for (const std::filesystem::path& path : removed) remove_file(path);
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
  std::int64_t highest = 0;
  for (const StepFolder& folder : step_folders(base))
    for (const std::string& name : list_folder(folder.path)) highest = std::max(highest, attempt_of(name).value_or(0));
  return highest;
}

std::optional<std::int64_t> latest_step(const std::filesystem::path& base) {
  const auto saved = saved_steps(base);
  return saved.empty() ? std::nullopt : std::optional(saved.back().step);
}

std::vector<std::filesystem::path> foreign_step_folders(const std::filesystem::path& base) {
  std::vector<std::filesystem::path> foreign;
  for (const std::string& name : list_folder(base))
    if (step_of(name) && kind_of(base / name) == NameKind::other) foreign.push_back(base / name);
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
  std::vector<StepFolder> folders = step_folders(base);
  for (const StepFolder& folder : folders)
    if (!folder.is_complete && folder.step < step && has_parts_alone(folder.path)) delete_folder(folder.path);
  if (kept.latest <= 0) return;
  std::erase_if(folders, [&](const StepFolder& folder) {
    return !folder.is_complete || folder.step > step || std::ranges::find(damaged, folder.step) != damaged.end();
  });
  const auto num_folders = std::ssize(folders);
  for (std::int64_t i = 0; i < num_folders - kept.latest; ++i) {
    const StepFolder& folder = folders[static_cast<std::size_t>(i)];
    const bool stays = (kept.every > 0 && folder.step % kept.every == 0) || !has_parts_alone(folder.path);
    if (stays) continue;
    while (const auto manifest = find_manifest(folder.path)) {
      remove_file(*manifest);
      sync_folder(folder.path);
    }
    delete_folder(folder.path);
  }
}

}  // namespace echelon
