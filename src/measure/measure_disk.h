// Measures the disk of a folder for `echelon bench --disk`: as checkpoints are written and read.
#pragma once

#include "spec/machine/disk_spec.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace echelon {

struct DiskMeasurement {
  std::int64_t num_bytes = std::int64_t{512} << 20;  // of the file that is written and read
  int num_rounds = 3;                                // rounds, of which the median counts
  std::function<void(std::string_view what, double fraction)> progress = {};
};

/// Writes files of its own to the folder, in blocks of 4 MiB as checkpoints are, syncs them, lets the system forget
/// them, reads them, and removes them. A disk with a cache of its own may still have them there. Throws Error if
/// `folder` is no folder or has no space, Failure if the disk fails.
[[nodiscard]] DiskSpec measure_disk(const std::filesystem::path& folder, const DiskMeasurement& options = {});

/// "ext4 on /dev/sda1"; empty if the system does not say.
[[nodiscard]] std::string file_system_of(const std::filesystem::path& folder);

}  // namespace echelon
