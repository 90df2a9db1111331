// What a row of a table says and its run does not have: tables of published runs are read leniently, but nothing is
// changed in silence.
#pragma once

#include "predict/published/published_row.h"

#include <string>
#include <vector>

namespace echelon {

/// A sentence for each unknown word and each value that cannot be used as given, with what is used instead.
[[nodiscard]] std::vector<std::string> assumptions_of(const CsvRow& row, const DescribedRun& run);

}  // namespace echelon
