#include "measure/kept_machine.h"

#include "base/error.h"
#include "spec/machine/probe_errors.h"

#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <fstream>

namespace echelon {
namespace {

namespace fs = std::filesystem;

bool is_same_machine(const HostSpec& a, const HostSpec& b) {
  return a.processor == b.processor && a.num_cores == b.num_cores && a.memory_bytes == b.memory_bytes;
}

/// "AMD EPYC 9R14" with two cores -> "amd-epyc-9r14-2-cores.toml"
std::string kept_file_name(const HostSpec& host) {
  std::string name;
  for (const char c : host.processor) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isalnum(letter) != 0)
      name += static_cast<char>(std::tolower(letter));
    else if (!name.empty() && name.back() != '-')
      name += '-';
  }
  return fmt::format("{}{}{}-cores.toml", name, name.ends_with('-') ? "" : "-", host.num_cores);
}

bool is_marked_busy(const fs::path& path) {
  std::string first;
  std::getline(std::ifstream(path) >> std::ws, first);
  return first.starts_with(busy_mark);
}

std::optional<HostSpec> read_kept(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  try {
    HostSpec host = read_host(path.string());
    return probe_errors(host).empty() ? std::optional(std::move(host)) : std::nullopt;
  } catch (const Error&) {  // another version of the format, or truncated
    return std::nullopt;
  }
}

/// Writes atomically, since others may read or write at the same time.
bool write_kept(const fs::path& path, const KeptMachine& machine) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  const fs::path part = path.string() + fmt::format(".{}", getpid());
  std::ofstream file(part);
  if (machine.was_busy) file << busy_mark << '\n';
  file << to_toml(machine.host);
  file.close();
  if (file.good()) fs::rename(part, path, error);
  if (file.good() && !error) return true;
  fs::remove(part, error);
  return false;
}

}  // namespace

std::optional<fs::path> cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && fs::path(cache).is_absolute())
    return fs::path(cache) / "echelon";
  if (const char* home = std::getenv("HOME"); home != nullptr && fs::path(home).is_absolute())
    return fs::path(home) / ".cache" / "echelon";
  return std::nullopt;
}

KeptMachine kept_machine(const HostSpec& own, const std::optional<fs::path>& folder, const MachineMeter& meter) {
  const fs::path path = folder ? *folder / kept_file_name(own) : fs::path();
  if (auto known = read_kept(path); known && is_same_machine(*known, own)) {
    const bool was_busy = is_marked_busy(path);
    if (!was_busy || meter.share_of_others() >= busy_share) return {*std::move(known), path, false, was_busy};
  }
  const Measurement measured = meter.measure();
  KeptMachine machine = {measured.host, path, true, measured.share_of_others >= busy_share};
  const bool is_wrong = !probe_errors(machine.host).empty();
  if (path.empty() || is_wrong || !write_kept(path, machine)) machine.path.clear();
  return machine;
}

}  // namespace echelon
