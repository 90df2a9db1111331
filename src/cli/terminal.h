// Whether somebody watches.
#pragma once

#include "report/progress.h"

namespace echelon {

/// terminal if the program's output goes to one, else log.
[[nodiscard]] ProgressStyle progress_style();

}  // namespace echelon
