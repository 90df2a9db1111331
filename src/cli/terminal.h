// The program's output: whether somebody watches it, and whether it arrives.
#pragma once

#include "report/progress.h"

namespace echelon {

/// terminal if the program's output goes to one, else log.
[[nodiscard]] ProgressStyle progress_style();

/// A program that is started with its output closed would write what it prints into the first file that it opens.
void keep_standard_files_open();

/// Throws Failure if something that was printed got lost, on a full disk for one.
void require_output_written();

}  // namespace echelon
