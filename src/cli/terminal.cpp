#include "cli/terminal.h"

#include "base/error.h"
#include "comm/launch_environment.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

namespace echelon {

ProgressStyle progress_style() {
  // mpirun gives its processes a terminal that no user sees.
  const bool is_launched = launch_environment().has_value();
  return isatty(STDOUT_FILENO) == 1 && !is_launched ? ProgressStyle::terminal : ProgressStyle::log;
}

void keep_standard_files_open() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(file, F_GETFD) < 0) (void)open("/dev/null", O_RDWR);  // takes the lowest free number, which is `file`
}

void require_output_written() {
  std::cout.flush();
  if (!std::cout || std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw Failure("the program's output could not be written; is the disk full?");
}

}  // namespace echelon
