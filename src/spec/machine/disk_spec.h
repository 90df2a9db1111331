// A disk, or a file system that hosts share, as one host writes and reads it.
#pragma once

namespace echelon {

/// Of all processes of the host together; bytes per second. 0: not measured.
struct DiskSpec {
  double write_bandwidth = 0;  // of a large file, until it is durable
  double read_bandwidth = 0;   // of a file that the host does not have in memory
  // Bytes that a core hands over in a second of its own time: it copies them into the system's memory.
  double write_core_bandwidth = 0;
  double sync_seconds = 0;  // until a new small file and its name are durable
  bool operator==(const DiskSpec&) const = default;

  [[nodiscard]] bool is_known() const { return write_bandwidth > 0; }
};

}  // namespace echelon
