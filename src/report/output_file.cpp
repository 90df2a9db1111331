#include "report/output_file.h"

#include "base/error.h"

#include <filesystem>
#include <fstream>

namespace echelon {

OutputFile::OutputFile(std::string_view flag, std::string path, std::string_view usual_name) : path_(std::move(path)) {
  require(!path_.empty(), "{} is empty, but it names the file to write (use {}={})", flag, flag, usual_name);
  const std::filesystem::path file = path_, folder = file.parent_path();
  require(!std::filesystem::is_directory(file), "{}={} cannot be written: it is a folder (use {}={})", flag, path_,
          flag, (file / usual_name).string());
  require(folder.empty() || std::filesystem::is_directory(folder),
          "{}={} cannot be written: there is no folder '{}'; create it, or write to {}={}", flag, path_,
          folder.string(), flag, file.filename().string());
  const bool was_there = std::filesystem::exists(file);
  const bool can_be_written = std::ofstream(path_, std::ios::app | std::ios::binary).good();
  std::error_code ignored;
  if (can_be_written && !was_there) std::filesystem::remove(file, ignored);
  require(can_be_written, "{}={} cannot be written; check the permissions of the folder", flag, path_);
}

std::optional<OutputFile> OutputFile::unless_empty(std::string_view flag, const std::string& path,
                                                   std::string_view usual_name) {
  return path.empty() ? std::nullopt : std::optional(OutputFile(flag, path, usual_name));
}

void OutputFile::write(std::string_view text) const {
  std::ofstream file(path_, std::ios::binary);
  file << text << std::flush;
  if (file) return;
  file.close();
  std::error_code ignored;
  // a partial file is useless
  if (std::filesystem::is_regular_file(path_, ignored)) std::filesystem::remove(path_, ignored);
  throw Failure(fmt::format("'{}' could not be written; is the disk full?", path_));
}

}  // namespace echelon
