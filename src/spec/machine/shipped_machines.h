// The files of machines/, which the build embeds in the binary.
#pragma once

#include <span>
#include <string_view>

namespace echelon {

struct ShippedMachine {
  std::string_view name;  // of the file, without .toml
  std::string_view text;
};

/// In the order of the names of their files.
[[nodiscard]] std::span<const ShippedMachine> shipped_machines();

}  // namespace echelon
