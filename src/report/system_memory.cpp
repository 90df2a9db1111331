#include "report/system_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

namespace echelon {

std::int64_t system_memory_bytes() {
  const std::int64_t num_pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  return std::max<std::int64_t>(0, num_pages) * std::max<std::int64_t>(0, page_bytes);
}

ProcessMemory process_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {.peak_bytes = std::int64_t{1024} * usage.ru_maxrss, .page_faults = usage.ru_minflt};
}

}  // namespace echelon
