#include "machine/host.h"

#include <unistd.h>

#include <array>
#include <fstream>
#include <functional>
#include <string>

namespace echelon {

std::uint64_t host_id() {
  std::array<char, 256> name{};
  (void)gethostname(name.data(), name.size() - 1);
  std::string boot;  // hosts may have the same name, such as "localhost"
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return std::hash<std::string>()(std::string(name.data()) + '/' + boot);
}

}  // namespace echelon
