// The program's output: whether it is a terminal, and whether all of it was written.
#pragma once

#include "report/progress.h"

namespace echelon {

/// terminal if the program's output goes to one, else log.
[[nodiscard]] ProgressStyle progress_style();

/// If its output is closed at start, a program would print into the first file that it opens.
void keep_standard_files_open();

/// Throws Failure if printed output was lost, for example on a full disk.
void require_output_written();

}  // namespace echelon
