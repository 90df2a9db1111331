#include "machine/host.h"

#include "base/host_name.h"

#include <fstream>
#include <functional>
#include <string>

namespace echelon {

std::uint64_t host_id() {
  std::string boot;  // hosts may have the same name, such as "localhost"
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return std::hash<std::string>()(host_name() + '/' + boot);
}

}  // namespace echelon
