// Writes a folder under a temporary name and renames it atomically.
#pragma once

#include <filesystem>

namespace echelon {

/// "FOLDER.tmp", where the folder is written; the same on every rank. "FOLDER.old", a replaced folder until it is
/// deleted.
[[nodiscard]] std::filesystem::path temporary_name(const std::filesystem::path& folder);
[[nodiscard]] std::filesystem::path outgoing_name(const std::filesystem::path& folder);

/// Throws Error unless `folder`, and each of the two names next to it, does not exist, is empty or contains only files
/// of a model, which may be deleted.
void require_replaceable(const std::filesystem::path& folder);

/// Whether `folder` is a folder with a config.json and only files of a model.
[[nodiscard]] bool is_model_folder(const std::filesystem::path& folder);

/// Deletes leftovers of a crash and creates the temporary folder with its parents. Throws Failure.
void create_temporary(const std::filesystem::path& folder);

/// Renames the temporary folder to its final name, exchanging it with an existing folder atomically if the file system
/// can. Deletes the old folder. Throws Failure.
void swap_in(const std::filesystem::path& folder);

}  // namespace echelon
