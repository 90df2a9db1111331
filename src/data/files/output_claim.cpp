#include "data/files/output_claim.h"

#include "base/error.h"

#include <system_error>

namespace echelon {
namespace {

namespace fs = std::filesystem;

/// Returns the folders that did not exist.
std::vector<fs::path> make_output(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> made;
  for (fs::path each = fs::absolute(folder).lexically_normal(); !fs::exists(each, error); each = each.parent_path())
    if (each.has_filename()) made.push_back(each);
  fs::create_directories(folder, error);
  if (error) throw Failure(fmt::format("prepare --output={} cannot be made: {}", folder, error.message()));
  return made;
}

}  // namespace

OutputClaim::OutputClaim(const std::string& folder)
    : made_(make_output(folder)), path_(fs::path(folder) / "prepare.lock") {
  lock_.emplace(path_);
  require(lock_->lock() != File::Lock::taken_by_another,
          "prepare --output={} has a preparation that is not over: {} (use another folder, or wait)", folder,
          lock_->holder().empty() ? "an unknown one" : lock_->holder());
  lock_->sign();
}

OutputClaim::~OutputClaim() {
  std::error_code ignored;
  fs::remove(path_, ignored);  // while it is locked: a process that has opened it sees that it has lost its name
  for (const fs::path& folder : made_) fs::remove(folder, ignored);
}

}  // namespace echelon
