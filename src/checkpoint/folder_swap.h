// A folder that is written under a temporary name and then takes its final name at once.
#pragma once

#include <filesystem>

namespace echelon {

/// "FOLDER.tmp", where the folder is made; the same on every rank. "FOLDER.old", where a replaced one waits for its
/// deletion.
[[nodiscard]] std::filesystem::path temporary_name(const std::filesystem::path& folder);
[[nodiscard]] std::filesystem::path outgoing_name(const std::filesystem::path& folder);

/// Throws Error unless `folder` is free, empty or holds nothing but the files of a model, which may be deleted.
void require_replaceable(const std::filesystem::path& folder);

/// Deletes what a crash left and creates the temporary folder with its parents. Throws Failure.
void create_temporary(const std::filesystem::path& folder);

/// Gives the temporary folder its final name, in one step with what was there where the file system can, and deletes
/// the old one. Throws Failure.
void swap_in(const std::filesystem::path& folder);

}  // namespace echelon
