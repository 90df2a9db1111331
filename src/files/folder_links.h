// Links in folders that may come from anyone: they must not lead out of the folder.
#pragma once

#include <filesystem>
#include <string_view>

namespace echelon {

/// The path of the file of this name in a folder, or of what a link of this name leads to. Throws Error if that is
/// outside of the folder. A link of a Hugging Face download cache, from snapshots/REVISION/ to blobs/HASH of the same
/// model, is allowed.
[[nodiscard]] std::filesystem::path path_in_folder(const std::filesystem::path& folder, std::string_view name);

}  // namespace echelon
