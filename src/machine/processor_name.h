// The processor's name, as /proc/cpuinfo tells it.
#pragma once

#include <iosfwd>
#include <string>

namespace echelon {

/// "AMD EPYC 9R14". On Arm, where Linux gives two codes and no name: "Arm Neoverse V2", or the codes of an unknown one.
/// "unknown" if there is nothing.
[[nodiscard]] std::string processor_name(std::istream& cpuinfo);
/// Of this machine.
[[nodiscard]] std::string processor_name();

}  // namespace echelon
