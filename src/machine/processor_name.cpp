#include "machine/processor_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string_view>

namespace echelon {
namespace {

struct ArmProcessor {
  std::string_view implementer, part, name;
};

/// The fields of the main identification register (MIDR_EL1), of CPUs that host training.
constexpr ArmProcessor arm_processors[] = {
    {"0x41", "0xd08", "Arm Cortex-A72"},  {"0x41", "0xd0c", "Arm Neoverse N1"}, {"0x41", "0xd40", "Arm Neoverse V1"},
    {"0x41", "0xd49", "Arm Neoverse N2"}, {"0x41", "0xd4f", "Arm Neoverse V2"}, {"0x41", "0xd84", "Arm Neoverse V3"},
    {"0x41", "0xd8e", "Arm Neoverse N3"}, {"0x46", "0x001", "Fujitsu A64FX"},   {"0xc0", "0xac3", "AmpereOne"},
};

std::string name_of_arm(std::string_view implementer, std::string_view part) {
  for (const ArmProcessor& known : arm_processors)
    if (known.implementer == implementer && known.part == part) return std::string(known.name);
  return fmt::format("Arm, implementer {} part {}", implementer, part);
}

}  // namespace

std::string processor_name(std::istream& cpuinfo) {
  std::string implementer;
  for (std::string line; std::getline(cpuinfo, line);) {
    const std::string value = line.substr(std::min(line.size(), line.find(':') + 2));
    if (line.starts_with("model name")) return value;
    if (line.starts_with("CPU implementer")) implementer = value;
    if (line.starts_with("CPU part")) return name_of_arm(implementer, value);
  }
  return "unknown";
}

std::string processor_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  return processor_name(cpuinfo);
}

}  // namespace echelon
