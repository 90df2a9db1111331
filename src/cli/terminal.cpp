#include "cli/terminal.h"

#include <unistd.h>

namespace echelon {

ProgressStyle progress_style() { return isatty(STDOUT_FILENO) == 1 ? ProgressStyle::terminal : ProgressStyle::log; }

}  // namespace echelon
