// A number of devices, or a range of them, as `plan --gpus` reads it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace echelon {

struct DeviceRange {
  std::optional<std::int64_t> fewest = {};  // none: one number, `most`
  std::int64_t most = 0;
};

/// "64", or "8..64". Throws Error naming the flag and a value that works.
[[nodiscard]] DeviceRange parse_device_range(std::string_view text);

}  // namespace echelon
